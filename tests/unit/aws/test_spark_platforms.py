"""Tests of Spark platforms: their requests, and the outcomes that they derive."""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from sleeper.aws.emr_cluster import ClusterSettings, ClusterSize, EmrClusters, cluster_request
from sleeper.aws.spark_platforms import EksStateMachine, EmrServerless
from sleeper.errors import InvalidRequestError, NotFoundError, UnavailableError
from sleeper.jobs.spark_platform import PlatformJob, RunState

ROLE = "arn:aws:iam::123456789012:role/driver"
IMAGE = "123456789012.dkr.ecr.eu-west-2.amazonaws.com/assets:abc"
JOB = PlatformJob(
    "0123abcd",
    "j",
    ("aws:test", "s3://jobs/0123abcd.json", "--run-id", "0123abcd"),
    {"spark.executor.cores": "4", "spark.driver.cores": "2", "spark.driver.memory": "8G"},
    environment={"SLEEPER_CONFIG_BUCKET": "config"},
)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    with mock_aws():
        yield


def error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "why"}}, "Call")


@pytest.fixture
def serverless(aws: None) -> EmrServerless:
    client = boto3.client("emr-serverless")
    response = client.create_application(
        name="bulk-import", releaseLabel="emr-7.9.0", type="SPARK", clientToken="t"
    )
    return EmrServerless(client, response["applicationId"], ROLE, "/sleeper/log")


def test_serverless_runs_the_driver_of_the_image(serverless: EmrServerless) -> None:
    reference = serverless.submit(JOB)
    assert serverless.outcome(reference).state is RunState.SUCCEEDED
    run = serverless.client.get_job_run(
        applicationId=serverless.application_id, jobRunId=reference
    )["jobRun"]
    driver = run["jobDriver"]["sparkSubmit"]
    assert driver["entryPoint"] == "local:///opt/sleeper/main.py"
    assert driver["entryPointArguments"] == list(JOB.arguments)
    options = driver["sparkSubmitParameters"].split(" --conf ")
    assert "spark.executor.cores=4" in options
    assert "spark.emr-serverless.driverEnv.SLEEPER_CONFIG_BUCKET=config" in options
    assert "spark.executorEnv.SLEEPER_CONFIG_BUCKET=config" in options
    assert run["name"] == JOB.run_id


class Recorder:
    """A client that returns given responses and records its requests."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers
        self.requests: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(**request: Any) -> Any:
            self.requests.append((name, request))
            answer = self._answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


def test_the_run_id_is_the_idempotency_token() -> None:
    client = Recorder(start_job_run={"jobRunId": "r"})
    assert EmrServerless(client, "a", ROLE, "log").submit(JOB) == "r"
    ((_, request),) = client.requests
    assert request["clientToken"] == JOB.run_id
    # A large run has no timeout.
    assert request["executionTimeoutMinutes"] == 0


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("PENDING", RunState.RUNNING),
        ("QUEUED", RunState.RUNNING),
        ("RUNNING", RunState.RUNNING),
        ("CANCELLING", RunState.RUNNING),
        ("SUCCESS", RunState.SUCCEEDED),
        ("FAILED", RunState.FAILED),
        ("CANCELLED", RunState.FAILED),
    ],
)
def test_serverless_states_are_translated(state: str, expected: RunState) -> None:
    run = {"state": state, "stateDetails": "exit code 1"}
    outcome = EmrServerless(Recorder(get_job_run={"jobRun": run}), "a", ROLE, "log").outcome("r")
    assert outcome.state is expected
    assert ("exit code 1" in outcome.reason) == (expected is RunState.FAILED)


def test_errors_of_serverless_are_translated(serverless: EmrServerless) -> None:
    serverless.submit(JOB)
    with pytest.raises(NotFoundError, match="00gone"):
        serverless.outcome("00gone")
    for code, kind in (
        ("ValidationException", InvalidRequestError),
        ("ThrottlingException", UnavailableError),
        ("ConflictException", UnavailableError),
    ):
        refusals = EmrServerless(Recorder(start_job_run=error(code)), "a", ROLE, "log")
        with pytest.raises(kind, match="bulk import job j on EMR Serverless"):
            refusals.submit(JOB)


SIZE = ClusterSize(("m7g.xlarge",), ("m7g.4xlarge", "m6g.4xlarge"), "SPOT", 2, 10)
PLACE = ClusterSettings(
    "sleeper-test-bulk-import",
    "emr-7.9.0",
    IMAGE,
    "s3://assets/0123.py",
    ("subnet-1",),
    "sg-nodes",
    "sg-service",
    "service-role",
    "profile",
    "security",
    "s3://jobs/logs/",
)


def test_a_cluster_runs_one_step_in_the_image_and_ends() -> None:
    request = cluster_request(PLACE, SIZE, JOB)
    (step,) = request["Steps"]
    command = step["HadoopJarStep"]["Args"]
    assert command[:5] == ["spark-submit", "--master", "yarn", "--deploy-mode", "cluster"]
    assert command[-len(JOB.arguments) - 1 :] == [PLACE.main_file, *JOB.arguments]
    for who in ("spark.yarn.appMasterEnv", "spark.executorEnv"):
        assert f"{who}.YARN_CONTAINER_RUNTIME_DOCKER_IMAGE={IMAGE}" in command
        assert f"{who}.SLEEPER_CONFIG_BUCKET=config" in command
    assert step["ActionOnFailure"] == "TERMINATE_CLUSTER"
    assert request["Instances"]["KeepJobFlowAliveWhenNoSteps"] is False
    assert IMAGE.partition("/")[0] in json.dumps(request["Configurations"])


def test_spot_nodes_fall_back_to_on_demand() -> None:
    main, others = cluster_request(PLACE, SIZE, JOB)["Instances"]["InstanceFleets"]
    assert main["TargetOnDemandCapacity"] == 1
    assert others["TargetSpotCapacity"] == 2
    spot = others["LaunchSpecifications"]["SpotSpecification"]
    assert spot["TimeoutAction"] == "SWITCH_TO_ON_DEMAND"


def test_a_message_sets_the_size_of_its_cluster() -> None:
    spec = {
        "sleeper.table.bulk.import.emr.master.x86.instance.types": "m6i.xlarge",
        "sleeper.bulk.import.emr.executor.instance.types": "m6i.4xlarge, m5.4xlarge",
        "sleeper.table.bulk.import.emr.executor.market.type": "on_demand",
        "sleeper.table.bulk.import.emr.executor.initial.capacity": "3",
        "sleeper.table.bulk.import.emr.executor.max.capacity": "30",
        "sleeper.table.bulk.import.emr.instance.architecture": "x86_64",
    }
    overridden_spec = SIZE.overridden(spec)
    assert overridden_spec == ClusterSize(
        ("m6i.xlarge",), ("m6i.4xlarge", "m5.4xlarge"), "ON_DEMAND", 3, 30
    )
    request = cluster_request(PLACE, overridden_spec, JOB)
    assert request["Instances"]["InstanceFleets"][1]["TargetOnDemandCapacity"] == 3
    assert request["ManagedScalingPolicy"]["ComputeLimits"]["MaximumCapacityUnits"] == 30


@pytest.mark.parametrize(
    "spec", [{"executor.max.capacity": "lots"}, {"executor.market.type": "FREE"}]
)
def test_an_invalid_size_is_refused_with_its_name(spec: dict[str, str]) -> None:
    (name,) = spec
    with pytest.raises(InvalidRequestError, match=name):
        SIZE.overridden(spec)


def test_a_run_has_one_cluster(aws: None) -> None:
    emr = boto3.client("emr")
    clusters = EmrClusters(emr, PLACE, SIZE)
    first = clusters.submit(JOB)
    assert clusters.submit(JOB) == first
    assert clusters.outcome(first).state is RunState.RUNNING
    emr.terminate_job_flows(JobFlowIds=[first])
    assert clusters.outcome(first).state is RunState.FAILED


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"State": "TERMINATING"}, RunState.RUNNING),
        (
            {"State": "TERMINATED", "StateChangeReason": {"Code": "ALL_STEPS_COMPLETED"}},
            RunState.SUCCEEDED,
        ),
        (
            {"State": "TERMINATED", "StateChangeReason": {"Code": "USER_REQUEST"}},
            RunState.FAILED,
        ),
        (
            {"State": "TERMINATED_WITH_ERRORS", "StateChangeReason": {"Message": "a step failed"}},
            RunState.FAILED,
        ),
    ],
)
def test_the_end_of_a_cluster_is_reported(status: dict[str, Any], expected: RunState) -> None:
    failure = {"Reason": "Unknown Error.", "LogFile": "s3://jobs/logs/stderr.gz"}
    steps = {"Steps": [{"Status": {"FailureDetails": failure}}]}
    client = Recorder(describe_cluster={"Cluster": {"Status": status}}, list_steps=steps)
    outcome = EmrClusters(client, PLACE, SIZE).outcome("j-1")
    assert outcome.state is expected
    assert ("s3://jobs/logs/stderr.gz" in outcome.reason) == (expected is RunState.FAILED)


def test_an_unknown_cluster_is_not_found(aws: None) -> None:
    with pytest.raises(NotFoundError, match="j-gone"):
        EmrClusters(boto3.client("emr"), PLACE, SIZE).outcome("j-gone")


@pytest.fixture
def eks(aws: None) -> EksStateMachine:
    client = boto3.client("stepfunctions")
    definition = {"StartAt": "Wait", "States": {"Wait": {"Type": "Succeed"}}}
    response = client.create_state_machine(
        name="bulk-import", definition=json.dumps(definition), roleArn=ROLE
    )
    return EksStateMachine(client, response["stateMachineArn"], IMAGE)


def test_an_execution_is_named_by_its_run_and_started_once(eks: EksStateMachine) -> None:
    reference = eks.submit(JOB)
    assert reference.endswith(f":{JOB.run_id}")
    assert eks.submit(JOB) == reference
    assert eks.outcome(reference).state is RunState.RUNNING
    eks.client.stop_execution(executionArn=reference, error="Killed", cause="out of memory")
    assert eks.outcome(reference).state is RunState.FAILED
    with pytest.raises(NotFoundError):
        eks.outcome(reference.replace(JOB.run_id, "gone"))


def test_a_pod_has_the_driver_s_arguments_and_environment(eks: EksStateMachine) -> None:
    result = eks.client.describe_execution(executionArn=eks.submit(JOB))
    pod = json.loads(result["input"])
    assert pod["arguments"][-len(JOB.arguments) :] == list(JOB.arguments)
    assert "spark.driver.host=$(POD_IP)" in pod["arguments"]
    assert f"spark.kubernetes.container.image={IMAGE}" in pod["arguments"]
    assert {"name": "SLEEPER_CONFIG_BUCKET", "value": "config"} in pod["environment"]
    assert (pod["cpu"], pod["memory"]) == ("2", f"{10 * 1024}Mi")


def test_the_failure_of_an_execution_is_reported() -> None:
    result = {"status": "FAILED", "error": "States.TaskFailed", "cause": "OOMKilled"}
    outcome = EksStateMachine(Recorder(describe_execution=result), "arn", IMAGE).outcome("e")
    assert outcome.state is RunState.FAILED
    assert outcome.reason == "FAILED: States.TaskFailed: OOMKilled"
