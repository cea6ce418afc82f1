"""The stacks of bulk import's platforms, and of bulk export, which the example leaves out."""

import json
from typing import Any

import pytest

from sleeper.properties.deployment import EMR_RELEASE
from tests.approved.approval import check_approved
from tests.infra.synthesis import PLATFORM_STACKS, ROOT, Synthesis, as_list
from tests.infra.test_templates import resource_lines


def _only(synthesis: Synthesis, kind: str) -> dict[str, Any]:
    (properties,) = synthesis.properties(kind)
    return properties


def _allowed(synthesis: Synthesis, concern: str) -> set[str]:
    return {
        action
        for where, statement in synthesis.statements()
        if where.startswith(f"{concern}/") and statement["Effect"] == "Allow"
        # The function that stops machines is in `test_lifecycle`.
        if not where.startswith(f"{concern}/StopRole")
        for action in as_list(statement["Action"])
    }


def test_each_platform_is_a_separate_stack(platforms: Synthesis) -> None:
    lines = resource_lines(platforms, {*PLATFORM_STACKS, "BulkImport"})
    check_approved("infra-bulk-import.txt", "\n".join(lines) + "\n")


def test_a_queue_is_recorded_for_each_platform(platforms: Synthesis) -> None:
    (resource,) = platforms.properties("Custom::SleeperProperties")
    deployed_values = resource["Deployed"]
    for name in ("emr", "persistent.emr", "emr.serverless", "eks"):
        assert f"sleeper.bulk.import.{name}.job.queue.url" in deployed_values
    for place in (
        "emr.serverless.application.id",
        "emr.serverless.role.arn",
        "emr.image",
        "emr.main.file",
        "emr.ec2.role.name",
        "emr.role.name",
        "emr.security.conf.name",
        "eks.image",
        "eks.statemachine.arn",
    ):
        assert f"sleeper.bulk.import.{place}" in deployed_values
    assert "sleeper.bulk.export.task.definition" in deployed_values


def test_nodes_of_clusters_read_the_driver_s_file_of_the_assets(platforms: Synthesis) -> None:
    (file,) = platforms.folder.glob("asset.*.py")
    assert file.read_text() == (ROOT / "containers" / "bulk_import" / "main.py").read_text()
    key = file.name.removeprefix("asset.")
    # `make assets` publishes what manifests list.
    manifests = [json.loads(path.read_text()) for path in platforms.folder.glob("*.assets.json")]
    files = [each for manifest in manifests for each in manifest["files"].values()]
    assert key in {d["objectKey"] for each in files for d in each["destinations"].values()}
    (resource,) = platforms.properties("Custom::SleeperProperties")
    url = json.dumps(resource["Deployed"]["sleeper.bulk.import.emr.main.file"])
    assert "s3://" in url
    assert f"/{key}" in url
    readers = {
        where.split("NodeRole")[0]
        for where, statement in platforms.statements()
        if "s3:GetObject" in as_list(statement["Action"])
        and any(f"/{key}" in json.dumps(each) for each in as_list(statement["Resource"]))
    }
    assert readers == {"Emr/Clusters", "PersistentEmr/Parts"}


def test_no_action_is_allowed_by_a_wildcard(platforms: Synthesis) -> None:
    for where, statement in platforms.statements():
        if statement["Effect"] == "Allow":
            assert [a for a in as_list(statement["Action"]) if "*" in a] == [], where


def test_only_actions_without_resources_are_allowed_on_all_resources(platforms: Synthesis) -> None:
    on_all = {
        action
        for where, statement in platforms.statements()
        if where.split("/")[0] in PLATFORM_STACKS
        and statement["Effect"] == "Allow"
        and "*" in as_list(statement.get("Resource", ""))
        for action in as_list(statement["Action"])
    }
    assert {a for a in on_all if not a.startswith(("logs:", "xray:"))} == {
        "dynamodb:ListStreams",
        "ec2:AssignPrivateIpAddresses",
        "ec2:CreateNetworkInterface",
        "ec2:DeleteNetworkInterface",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeSubnets",
        "ec2:UnassignPrivateIpAddresses",
        "ecr:GetAuthorizationToken",
        "ecs:ListTasks",
        "elasticmapreduce:ListClusters",
        "elasticmapreduce:RunJobFlow",
    }


def test_roles_are_passed_only_to_their_service(platforms: Synthesis) -> None:
    passed = [
        statement["Condition"]["StringEquals"]["iam:PassedToService"]
        for where, statement in platforms.statements()
        if as_list(statement.get("Action", "")) == ["iam:PassRole"]
        and where.split("/")[0] in {"EmrServerless", "Emr", "PersistentEmr", "Eks"}
    ]
    assert sorted(passed) == [
        "ec2.amazonaws.com",
        "ec2.amazonaws.com",
        "ec2.amazonaws.com",
        "elasticmapreduce.amazonaws.com",
        "emr-serverless.amazonaws.com",
    ]


def test_a_role_of_step_functions_serves_one_state_machine(platforms: Synthesis) -> None:
    trusts = [
        statement["Condition"]
        for _, statement in platforms.statements()
        if statement.get("Principal") == {"Service": "states.amazonaws.com"}
    ]
    here = {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    assert [trust["StringEquals"] for trust in trusts] == [here] * 2
    sources = {json.dumps(t["ArnEquals"]["aws:SourceArn"]).rpartition(":")[2] for t in trusts}
    stem = "sleeper-example-bulk-import-eks"
    assert sources == {f'{stem}"]]}}', f'{stem}-setup"]]}}'}


@pytest.mark.parametrize("service", ["elasticmapreduce", "emr-serverless", "pods.eks"])
def test_roles_of_platforms_are_limited_to_the_account(platforms: Synthesis, service: str) -> None:
    trusts = [
        statement
        for _, statement in platforms.statements()
        if statement.get("Principal") == {"Service": f"{service}.amazonaws.com"}
    ]
    here = {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
    assert trusts
    assert all(statement["Condition"] == here for statement in trusts)


@pytest.mark.parametrize("concern", ["EmrServerless", "Emr", "Eks"])
def test_the_watcher_may_describe_and_the_starter_may_start_runs(
    platforms: Synthesis, concern: str
) -> None:
    of_platform = {
        "EmrServerless": {"emr-serverless:StartJobRun", "emr-serverless:GetJobRun"},
        "Emr": {
            "elasticmapreduce:RunJobFlow",
            "elasticmapreduce:ListClusters",
            "elasticmapreduce:AddTags",
            "elasticmapreduce:DescribeCluster",
            "elasticmapreduce:ListSteps",
        },
        "Eks": {"states:StartExecution", "states:DescribeExecution", "states:StopExecution"},
    }[concern]
    own = ("emr-serverless:", "elasticmapreduce:", "states:")
    assert {a for a in _allowed(platforms, concern) if a.startswith(own)} == of_platform
    environment = {
        p["FunctionName"]: p["Environment"]["Variables"]["SLEEPER_BULK_IMPORT_PLATFORM"]
        for where, r in platforms.of_type("AWS::Lambda::Function").items()
        if where.startswith(f"{concern}/") and not where.startswith(f"{concern}/Stop")
        for p in [r["Properties"]]
    }
    name = {"EmrServerless": "emr_serverless", "Emr": "emr", "Eks": "eks"}[concern]
    stem = name.replace("_", "-")
    assert environment == {
        f"sleeper-example-start-bulk-import-{stem}": name,
        f"sleeper-example-watch-bulk-imports-{stem}": name,
    }


def test_no_role_of_a_bulk_import_deletes_data(platforms: Synthesis) -> None:
    others = {*PLATFORM_STACKS} - {"Stash", "Iceberg", "ExportQueues"}
    for where, statement in platforms.statements():
        if where.split("/")[0] in others and "s3:DeleteObject" in as_list(statement["Action"]):
            for resource in as_list(statement["Resource"]):
                text = json.dumps(resource)
                assert "/runs/" in text or "/staged/" in text, where


def test_serverless_stops_by_itself_and_has_a_limit(platforms: Synthesis) -> None:
    application = _only(platforms, "AWS::EMRServerless::Application")
    assert application["AutoStopConfiguration"] == {"Enabled": True, "IdleTimeoutMinutes": 15}
    assert application["MaximumCapacity"]["Cpu"] == "400 vCPU"
    assert application["ReleaseLabel"] == EMR_RELEASE.default
    assert application["Architecture"] == "ARM64"
    assert "InitialCapacity" not in application
    assert "ImageUri" in application["ImageConfiguration"]
    assert len(application["NetworkConfiguration"]["SubnetIds"]) == 2


def test_clusters_require_tokens_for_instance_metadata(platforms: Synthesis) -> None:
    for made in platforms.properties("AWS::EMR::SecurityConfiguration"):
        service = made["SecurityConfiguration"]["InstanceMetadataServiceConfiguration"]
        assert service["MinimumInstanceMetadataServiceVersion"] == 2


def test_the_persistent_cluster_runs_a_worker_per_concurrent_job(platforms: Synthesis) -> None:
    cluster = _only(platforms, "AWS::EMR::Cluster")
    (step,) = cluster["Steps"]
    text = json.dumps(step)
    assert "-m sleeper.workers.task" in text
    assert "seq 1)" in text
    assert cluster["Instances"]["KeepJobFlowAliveWhenNoSteps"]
    concern = "PersistentEmr"
    assert {"sqs:ReceiveMessage", "sqs:DeleteMessage"} <= _allowed(platforms, concern)


def _machines(platforms: Synthesis) -> dict[str, Any]:
    return {
        p["StateMachineName"].removeprefix("sleeper-example-bulk-import-eks"): p
        for p in platforms.properties("AWS::StepFunctions::StateMachine")
    }


def test_the_setup_of_eks_continues_if_resources_exist(platforms: Synthesis) -> None:
    definition = _machines(platforms)["-setup"]["Definition"]
    states = definition["States"]
    state_name, path = definition["StartAt"], []
    while state_name:
        path.append(state_name)
        for caught in states[state_name].get("Catch", ()):
            assert caught["ErrorEquals"] == ["EKS.409"]
            assert caught["Next"] == states[state_name]["Next"]
        state_name = states[state_name].get("Next")
    assert path == ["Namespace", "ServiceAccount", "RoleBinding", "Ready"]
    assert set(path) == set(states)


def test_a_job_on_eks_starts_the_setup_and_has_one_attempt(platforms: Synthesis) -> None:
    definition = _machines(platforms)[""]["Definition"]
    states = definition["States"]
    assert definition["StartAt"] == "Setup"
    assert states["Setup"]["Next"] == "RunJob"
    # What a message says does not reach the setup, which is an administrator of the cluster.
    assert states["Setup"]["Parameters"]["Input"] == {}
    job = states["RunJob"]["Parameters"]["Job"]["spec"]
    assert job["backoffLimit"] == 0
    assert states["RunJob"]["Resource"] == "arn:aws:states:::eks:runJob.sync"


def test_only_the_setup_of_eks_is_an_administrator_of_the_cluster(platforms: Synthesis) -> None:
    access = {
        where.removeprefix("Eks/"): resource["Properties"]["AccessPolicies"]
        for where, resource in platforms.of_type("AWS::EKS::AccessEntry").items()
    }
    (setup,), (job,) = access["SetupAccess"], access["MachineAccess"]
    assert "AmazonEKSClusterAdminPolicy" in json.dumps(setup["PolicyArn"])
    assert "AmazonEKSEditPolicy" in json.dumps(job["PolicyArn"])
    assert job["AccessScope"] == {"Type": "namespace", "Namespaces": ["sleeper-bulk-import"]}


def test_eks_scales_its_nodes(platforms: Synthesis) -> None:
    cluster = _only(platforms, "AWS::EKS::Cluster")
    assert cluster["ComputeConfig"]["Enabled"]
    assert cluster["ComputeConfig"]["NodePools"] == ["general-purpose"]
    assert platforms.of_type("AWS::EKS::Nodegroup") == {}
    identity = _only(platforms, "AWS::EKS::PodIdentityAssociation")
    assert identity["Namespace"] == "sleeper-bulk-import"


def test_logs_of_eks_have_the_common_retention(platforms: Synthesis) -> None:
    remaining = {
        p["LogGroupName"]: p.get("RetentionInDays")
        for p in platforms.properties("AWS::Logs::LogGroup")
    }
    assert remaining["/aws/eks/sleeper-example-bulk-import/cluster"] == 30
    assert set(remaining.values()) == {30}


def test_the_image_is_made_from_the_release_that_is_the_default() -> None:
    text = (ROOT / "containers" / "bulk_import" / "Dockerfile").read_text()
    assert f"ARG RELEASE={EMR_RELEASE.default}\n" in text


def test_nag_finds_nothing(platforms: Synthesis) -> None:
    report = json.loads((platforms.folder / "validation-report.json").read_text())
    assert report["pluginReports"] == []
