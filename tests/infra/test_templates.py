"""Required settings of each resource in the example's templates."""

import json
import re
from typing import Any

from sleeper.properties.deployed import DEPLOYED_QUEUES, DEPLOYED_TABLES
from sleeper.retries import JOB_RETRY_SECONDS, RETRY_VARIABLE
from sleeper.workers.schedule import TABLE_OPERATIONS
from tests.approved.approval import check_approved
from tests.infra.synthesis import Synthesis, as_list

QUEUE = "AWS::SQS::Queue"
FUNCTION = "AWS::Lambda::Function"
BUCKET = "AWS::S3::Bucket"
TABLE = "AWS::DynamoDB::Table"
# Not if the deployment that makes it fails: it would be in the way of the next.
_KEPT = "RetainExceptOnCreate"


def _text(value: Any) -> str:
    """A name with its references as CloudFormation writes them in `Fn::Sub`."""
    if isinstance(value, str):
        return value
    if "Ref" in value:
        return f"${{{value['Ref']}}}"
    return "".join(map(_text, value["Fn::Join"][1])) if "Fn::Join" in value else str(value)


def resource_lines(synthesis: Synthesis, concerns: set[str]) -> list[str]:
    """Returns the approved list: a line for each resource type of these concerns."""
    lines: list[str] = []
    for concern in sorted(concerns):
        template = synthesis.templates[concern]
        lines.append(f"{concern}: {len(template['Resources'])} resources")
        names_by_kind: dict[str, list[str]] = {}
        for resource in template["Resources"].values():
            attribute = _NAMED_BY.get(resource["Type"])
            if attribute is not None:
                name = _text(resource["Properties"][attribute])
                names_by_kind.setdefault(resource["Type"], []).append(name.removeprefix(PREFIX))
        for kind, names in sorted(names_by_kind.items()):
            lines.append(f"  {kind}: {', '.join(sorted(names))}")
    return lines


def test_the_resources_match_the_recorded_list(example: Synthesis) -> None:
    lines = resource_lines(example, set(example.templates))
    check_approved("infra-resources.txt", "\n".join(lines) + "\n")


PREFIX = "sleeper-example-"
_NAMED_BY = {
    "AWS::SQS::Queue": "QueueName",
    "AWS::Lambda::Function": "FunctionName",
    "AWS::S3::Bucket": "BucketName",
    "AWS::DynamoDB::Table": "TableName",
    "AWS::Events::Rule": "Name",
    "AWS::ECS::TaskDefinition": "Family",
    "AWS::ECS::Cluster": "ClusterName",
    "AWS::SNS::Topic": "TopicName",
    "AWS::EC2::VPCEndpoint": "VpcEndpointType",
    "AWS::EKS::Cluster": "Name",
    "AWS::EMR::Cluster": "Name",
    "AWS::EMR::SecurityConfiguration": "Name",
    "AWS::EMRServerless::Application": "Name",
    "AWS::StepFunctions::StateMachine": "StateMachineName",
    "Custom::SleeperTable": "Name",
}


def test_every_queue_has_dead_letters(example: Synthesis) -> None:
    queues = {p["QueueName"]: p for p in example.properties(QUEUE)}
    queues_with_names = [
        q for q in DEPLOYED_QUEUES.values() if f"sleeper-example-{q.name}" in queues
    ]
    # Only clients receive results, so that they are no dead letters of the instance.
    assert len(queues) == 2 * len(queues_with_names) + len({f"{PREFIX}query-results"})
    for queue in queues_with_names:
        properties = queues[f"sleeper-example-{queue.name}"]
        dead = f"sleeper-example-{queue.dead_letters_name}"
        target = properties["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"][0]
        assert _named(example, target)["QueueName"] == dead
        assert properties["SqsManagedSseEnabled"]


def _named(example: Synthesis, logical_id: str) -> dict[str, Any]:
    return next(
        t["Resources"][logical_id]["Properties"]
        for t in example.templates.values()
        if logical_id in t["Resources"]
    )


def test_the_visibility_timeout_outlasts_the_timeout_of_a_function(
    example: Synthesis,
) -> None:
    seen = 0
    for template in example.templates.values():
        resources = template["Resources"]
        for mapping in resources.values():
            if mapping["Type"] != "AWS::Lambda::EventSourceMapping":
                continue
            properties = mapping["Properties"]
            queue = resources[properties["EventSourceArn"]["Fn::GetAtt"][0]]["Properties"]
            function = resources[properties["FunctionName"]["Ref"]]["Properties"]
            assert queue["VisibilityTimeout"] >= 6 * function["Timeout"], queue["QueueName"]
            # What may take the function's time or memory must not take other messages with it.
            is_light = "commits" in queue["QueueName"] or "batcher" in queue["QueueName"]
            is_light = is_light or "bulk-import" in queue["QueueName"]
            is_light = is_light or "row-deletion" in queue["QueueName"]
            assert properties["BatchSize"] == (10 if is_light else 1), queue["QueueName"]
            retried = function["Environment"]["Variables"].get(RETRY_VARIABLE)
            is_query = "query" in queue["QueueName"]
            expected = str(min(JOB_RETRY_SECONDS, function["Timeout"] // 3))
            assert retried == (None if is_query else expected), queue["QueueName"]
            assert properties["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
            seen += 1
    assert seen == 12


def test_no_role_allows_wildcard_actions(example: Synthesis) -> None:
    allowed = [s for _, s in example.statements() if s["Effect"] == "Allow"]
    assert len(allowed) > 100
    for where, statement in example.statements():
        if statement["Effect"] == "Allow":
            assert "NotAction" not in statement
            assert [a for a in as_list(statement["Action"]) if "*" in a] == [], where


def test_only_actions_without_resources_are_allowed_on_all_resources(example: Synthesis) -> None:
    on_all = {
        action
        for where, statement in example.statements()
        if statement["Effect"] == "Allow"
        and "*" in as_list(statement.get("Resource", ""))
        # The policy of an endpoint grants no permissions, it limits them.
        and not where.startswith("Network/")
        for action in as_list(statement["Action"])
    }
    assert on_all == {
        "cloudwatch:GetMetricData",
        "ecr:GetAuthorizationToken",
        "ecs:ListTasks",
        "logs:DescribeLogGroups",
    }


def test_only_collection_and_the_emptier_delete_data(example: Synthesis) -> None:
    deleting = {
        where.split("/")[0]
        for where, statement in example.statements()
        if statement["Effect"] == "Allow"
        and "s3:DeleteObject" in as_list(statement["Action"])
        and any(_text(r).endswith("/data/*") for r in as_list(statement["Resource"]))
    }
    assert deleting == {"GarbageCollection"}


def test_every_function_knows_its_instance(example: Synthesis) -> None:
    functions = example.properties(FUNCTION)
    assert len(functions) == 28
    for function in functions:
        environment = function["Environment"]["Variables"]
        assert environment["SLEEPER_INSTANCE"] == "aws:example"
        assert _text(environment["SLEEPER_CONFIG_BUCKET"]) == (
            "sleeper-example-config-${AWS::AccountId}"
        )
        assert environment["POWERTOOLS_METRICS_NAMESPACE"] == "Sleeper"
        assert "TracingConfig" not in function
        assert function["Architectures"] == ["arm64"]


def test_functions_from_the_zip_name_a_handler_of_the_folder(example: Synthesis) -> None:
    handlers = {p["Handler"] for p in example.properties(FUNCTION) if "Handler" in p}
    for name in ("write_properties", "fan_out_tables", "commit_transactions"):
        assert f"lambdas.{name}.handler.handler" in handlers
    assert all(h.startswith("lambdas.") and h.endswith(".handler.handler") for h in handlers)
    images = [p["FunctionName"] for p in example.properties(FUNCTION) if p.get("PackageType")]
    names = {name.removeprefix(PREFIX) for name in images}
    assert names == {"plan-query", "run-leaf-query", "split-partition"}


def test_buckets_are_private_encrypted_and_retained(example: Synthesis) -> None:
    for resource in example.of_type(BUCKET).values():
        properties = resource["Properties"]
        assert properties["BucketEncryption"]
        assert all(properties["PublicAccessBlockConfiguration"].values())
        rules = properties["LifecycleConfiguration"]["Rules"]
        assert any("AbortIncompleteMultipartUpload" in rule for rule in rules)
        lasting = _text(properties["BucketName"]).startswith(
            ("sleeper-example-config", "sleeper-example-table-data")
        )
        assert ("VersioningConfiguration" in properties) == lasting
        assert resource["DeletionPolicy"] == (_KEPT if lasting else "Delete")


def test_buckets_and_queues_require_tls(example: Synthesis) -> None:
    refusals = [
        where
        for where, statement in example.statements()
        if statement["Effect"] == "Deny"
        and statement.get("Condition") == {"Bool": {"aws:SecureTransport": "false"}}
    ]
    topics = 1
    assert len(refusals) == len(example.of_type(BUCKET)) + len(example.of_type(QUEUE)) + topics


def test_dynamodb_tables_have_the_keys_of_their_adapters(example: Synthesis) -> None:
    keys = {
        p["TableName"]: [key["AttributeName"] for key in p["KeySchema"]]
        for p in example.properties(TABLE)
    }
    tables = DEPLOYED_TABLES
    expected = [[t.key.hash] + ([t.key.range] if t.key.range else []) for t in tables]
    assert sorted(keys.values()) == sorted(expected)
    assert keys["sleeper-example-transaction-log"] == ["tableId", "item"]


def test_irreplaceable_tables_are_retained_and_backed_up(example: Synthesis) -> None:
    for resource in example.of_type(TABLE).values():
        name = resource["Properties"]["TableName"].removeprefix("sleeper-example-")
        recovery = resource["Properties"]["PointInTimeRecoverySpecification"]
        lasting = name.startswith(("table-index", "transaction-log", "ingest-batcher"))
        assert recovery["PointInTimeRecoveryEnabled"] == lasting, name
        assert resource["DeletionPolicy"] == (_KEPT if lasting else "Delete"), name


def test_properties_name_all_created_resources(example: Synthesis) -> None:
    (resource,) = example.properties("Custom::SleeperProperties")
    deployed_values = resource["Deployed"]
    queue_names = {p["QueueName"] for p in example.properties(QUEUE)}
    for queue in DEPLOYED_QUEUES.values():
        present = f"sleeper-example-{queue.name}" in queue_names
        for place in (queue.url, queue.arn, queue.dead_letters_url, queue.dead_letters_arn):
            assert (place.name in deployed_values) == present
    rules = {p["Name"] for p in example.properties("AWS::Events::Rule")}
    assert set(deployed_values["sleeper.schedule.rules"].split(",")) == rules
    assert resource["Set"]["sleeper.tags"] == "Project,sleeper"


def test_the_tables_of_the_folder_are_defined_after_the_properties(example: Synthesis) -> None:
    (table,) = example.of_type("Custom::SleeperTable").values()
    assert table["Properties"]["Name"] == "flights"
    assert table["Properties"]["SplitPoints"] == "N3\nN6\n"
    assert any(item.startswith("Properties") for item in table["DependsOn"])


def test_tasks_reach_services_without_the_internet_if_endpoints_are_chosen(
    platforms: Synthesis,
) -> None:
    endpoints = platforms.properties("AWS::EC2::VPCEndpoint")
    kinds = sorted(p["VpcEndpointType"] for p in endpoints)
    assert kinds == ["Gateway"] * 2 + ["Interface"] * 5
    for kind in ("AWS::EC2::NatGateway", "AWS::EC2::InternetGateway"):
        assert platforms.of_type(kind) == {}
    (resource,) = platforms.properties("Custom::SleeperProperties")
    assert resource["Deployed"]["sleeper.network.interface.endpoints"] == "true"


def test_functions_are_traced_if_chosen(platforms: Synthesis) -> None:
    functions = platforms.properties(FUNCTION)
    assert all(each["TracingConfig"] == {"Mode": "Active"} for each in functions)
    actions = {a for _, each in platforms.statements() for a in as_list(each["Action"])}
    assert {"xray:PutTelemetryRecords", "xray:PutTraceSegments"} <= actions


def test_nothing_of_a_default_instance_has_a_price_by_the_hour(example: Synthesis) -> None:
    endpoints = example.properties("AWS::EC2::VPCEndpoint")
    assert [p["VpcEndpointType"] for p in endpoints] == ["Gateway"] * 2
    assert example.of_type("AWS::EC2::NatGateway") == {}
    assert not any(p.get("VpcConfig") for p in example.properties(FUNCTION))
    # In a network without endpoints it would reach no logs.
    (application,) = example.properties("AWS::EMRServerless::Application")
    assert "NetworkConfiguration" not in application
    assert "InitialCapacity" not in application
    assert "Metrics" not in example.templates


def test_roles_that_create_and_delete_tables_may_write_and_delete_the_birthmark(
    example: Synthesis,
) -> None:
    may = {
        (where.split("/")[0], action)
        for where, statement in example.statements()
        for action in as_list(statement["Action"])
        if any(_text(r).endswith("/*/created") for r in as_list(statement.get("Resource", [])))
    }
    assert {("Properties", "s3:PutObject"), ("GarbageCollection", "s3:DeleteObject")} <= may


def test_roles_that_count_messages_may_count_dead_letters(example: Synthesis) -> None:
    """`MessageQueue.counts` reads both queues."""
    counts: dict[str, set[str]] = {}
    names = {q.name: q.dead_letters_name for q in DEPLOYED_QUEUES.values()}
    declaration = {*names, *names.values()}
    for where, statement in example.statements():
        if "sqs:GetQueueAttributes" not in as_list(statement["Action"]):
            continue
        if "sqs:ReceiveMessage" in as_list(statement["Action"]):
            continue  # Lambda, of a queue that feeds a function
        if "sqs:SendMessage" in as_list(statement["Action"]):
            continue  # of a user's queue of results, how big its messages may be
        queues = {
            _text(r).rpartition(":sleeper-example-")[2] for r in as_list(statement["Resource"])
        }
        if where.startswith("Watch/"):
            continue  # every queue
        # Users' own, which take results, are none of the instance's.
        if own := queues & declaration:
            counts.setdefault(where.split("/")[0], set()).update(own)
    expected = {
        "Ingest": {"ingest-jobs"},
        "Compaction": {
            "compaction-jobs",
            "compaction-job-creation.fifo",
            "transaction-commits.fifo",
        },
        "Splitting": {"find-partitions-to-split.fifo"},
        "GarbageCollection": {"garbage-collection.fifo", "orphan-collection.fifo"},
        "StateStore": {"state-snapshots.fifo"},
    }
    assert counts == {
        stack: queues | {names[queue] for queue in queues} for stack, queues in expected.items()
    }


def test_alarms_may_be_sent_to_their_topic(example: Synthesis) -> None:
    """A topic's own policy replaces the default one, which allows the account's alarms."""
    (policy,) = example.properties("AWS::SNS::TopicPolicy")
    allowed = [s for s in policy["PolicyDocument"]["Statement"] if s["Effect"] == "Allow"]
    (statement,) = allowed
    assert statement["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert as_list(statement["Action"]) == ["sns:Publish"]
    assert statement["Condition"] == {
        "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    }


def test_commits_are_received_twenty_times(example: Synthesis) -> None:
    commits = example.find_named(QUEUE, "QueueName", f"{PREFIX}transaction-commits.fifo")
    assert commits["RedrivePolicy"]["maxReceiveCount"] == 20


def test_queries_may_write_only_results(example: Synthesis) -> None:
    names = {
        _text(resource)
        for where, statement in example.statements()
        if where.startswith("Query/") and statement["Effect"] == "Allow"
        for resource in as_list(statement.get("Resource", []))
        if {"s3:PutObject", "sqs:SendMessage"} & set(as_list(statement["Action"]))
    }
    assert sorted(item.rpartition("sleeper-example-")[2] for item in names) == [
        "leaf-partition-query",
        "query-results*",
        "query-results-${AWS::AccountId}/query-*",
    ]


def test_functions_of_rules_do_not_pile_up_while_the_account_has_no_room(
    example: Synthesis,
) -> None:
    """Without a limit, Lambda keeps events for six hours and runs them all when it has capacity."""
    seen = 0
    for template in example.templates.values():
        resources = template["Resources"]
        waits = {
            p["FunctionName"]["Ref"]: (p["MaximumRetryAttempts"], p["MaximumEventAgeInSeconds"])
            for r in resources.values()
            if r["Type"] == "AWS::Lambda::EventInvokeConfig"
            for p in [r["Properties"]]
        }
        for rule in resources.values():
            if rule["Type"] != "AWS::Events::Rule":
                continue
            number, unit = rule["Properties"]["ScheduleExpression"][5:-1].split()
            seconds = int(number) * {"minute": 60, "hour": 3600, "day": 86_400}[unit.rstrip("s")]
            (target,) = rule["Properties"]["Targets"]
            retries, age = waits[target["Arn"]["Fn::GetAtt"][0]]
            assert age == min(seconds, 6 * 3600)
            assert retries == (0 if seconds <= 300 else 2)
            assert target["RetryPolicy"] == {
                "MaximumEventAgeInSeconds": age,
                "MaximumRetryAttempts": retries,
            }
            seen += 1
    assert seen == len(example.of_type("AWS::Events::Rule"))


def test_task_roles_are_limited_to_tasks_of_the_account(example: Synthesis) -> None:
    of_account = {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
    roles = [
        statement
        for where, statement in example.statements()
        if statement.get("Principal") == {"Service": "ecs-tasks.amazonaws.com"}
        and "ExecutionRole" not in where
    ]
    assert len(roles) == 2
    assert all(statement["Condition"] == of_account for statement in roles)
    passed = [
        (len(statement["Resource"]), statement["Condition"]["StringEquals"])
        for where, statement in example.statements()
        if "iam:PassRole" in as_list(statement.get("Action", ""))
        and where.startswith(("Ingest/", "Compaction/"))
    ]
    assert passed == [(2, {"iam:PassedToService": "ecs-tasks.amazonaws.com"})] * 2


def test_a_failing_table_is_retried_before_its_message_becomes_a_dead_letter(
    example: Synthesis,
) -> None:
    queues = {p["QueueName"]: p for p in example.properties(QUEUE)}
    operations = [each for each in TABLE_OPERATIONS if each.value != "table_metrics"]
    for operation in operations:
        name = f"{PREFIX}{DEPLOYED_QUEUES[operation.value].name}"
        assert queues[name]["RedrivePolicy"]["maxReceiveCount"] == 10, name


def test_uploads_to_the_data_bucket_may_be_ingested_and_expire(example: Synthesis) -> None:
    """Clients of gchq/sleeper upload to `for_ingest/` and name the file in a job."""
    (bucket,) = (p for p in example.properties(BUCKET) if "table-data" in _text(p["BucketName"]))
    rules = bucket["LifecycleConfiguration"]["Rules"]
    (uploads,) = (rule for rule in rules if "Prefix" in rule)
    assert uploads == {
        "Prefix": "for_ingest/",
        "Status": "Enabled",
        "ExpirationInDays": 1,
        "NoncurrentVersionExpiration": {"NoncurrentDays": 1},
    }
    reader = {
        where.split("/")[0]
        for where, statement in example.statements()
        if "s3:GetObject" in as_list(statement["Action"])
        and any(_text(r).endswith("/for_ingest/*") for r in as_list(statement["Resource"]))
    }
    assert {"Ingest", "IngestBatcher"} <= reader
    # Without it S3 answers "forbidden" for an object that is missing.
    listing = {
        where.split("/")[0]
        for where, statement in example.statements()
        if "s3:ListBucket" in as_list(statement["Action"])
        and any("table-data" in _text(r) for r in as_list(statement["Resource"]))
    }
    assert reader <= listing


def test_items_of_trackers_only_expire(example: Synthesis, platforms: Synthesis) -> None:
    """A role that records jobs must not be able to remove the records of others."""
    deletes = {"dynamodb:DeleteItem", "dynamodb:BatchWriteItem"}
    allowed = {
        (action, _text(resource).rpartition("table/sleeper-example-")[2])
        for synthesis in (example, platforms)
        for where, statement in synthesis.statements()
        # The policy of an endpoint grants no permissions.
        if not where.startswith("Network/")
        for action in as_list(statement["Action"])
        for resource in as_list(statement.get("Resource", ()))
    }
    deletable = {table for action, table in allowed if action in deletes}
    indexes = {"table-index-by-id", "table-index-by-name", "table-index-by-online"}
    assert deletable == {*indexes, "transaction-log", "export-queues", "holds"}
    # Indexes change in transactions, and logs are trimmed in batches.
    assert ("dynamodb:BatchWriteItem", "table-index-by-id") not in allowed
    assert ("dynamodb:DeleteItem", "transaction-log") not in allowed
    assert not any(action == "dynamodb:ConditionCheckItem" for action, _ in allowed)


def test_ingest_tasks_may_read_the_tables_that_fill_fields(example: Synthesis) -> None:
    """`sleeper.table.ingest.enrichment` can name a table, whose rows the task loads."""
    read = {
        _text(resource).rpartition("sleeper-example-")[2]
        for where, statement in example.statements()
        if where.startswith("Ingest/TaskRole") and "s3:GetObject" in as_list(statement["Action"])
        for resource in as_list(statement["Resource"])
    }
    assert "table-data-${AWS::AccountId}/*/data/*" in read


def test_outputs_match_the_clients_of_gchq_sleeper(example: Synthesis) -> None:
    (resource,) = example.properties("Custom::SleeperProperties")
    deployed_values = resource["Deployed"]
    # They refuse to start without these, also where the deployment created the network.
    assert deployed_values["sleeper.vpc"] == deployed_values["sleeper.network.vpc.created"]
    assert deployed_values["sleeper.subnets"] == deployed_values["sleeper.task.subnets"]
    queue = example.find_named(QUEUE, "QueueName", f"{PREFIX}query-results")
    assert queue["SqsManagedSseEnabled"]
    for role in ("query", "ingest.by.queue", "ingest.direct", "admin"):
        assert f"sleeper.{role}.role.arn" in deployed_values
    assert {"sleeper.query.results.queue.url", "sleeper.query.results.queue.arn"} <= set(
        deployed_values
    )


def test_client_roles_are_of_the_account_and_cannot_delete_files(example: Synthesis) -> None:
    roles = example.templates["ClientRoles"]["Resources"]
    trusts = [
        r["Properties"]["AssumeRolePolicyDocument"]["Statement"]
        for r in roles.values()
        if r["Type"] == "AWS::IAM::Role"
    ]
    assert len(trusts) == 4
    assert all(":root" in _text(trust[0]["Principal"]["AWS"]) for trust in trusts)
    by_role = _client_permissions(example)
    assert set(by_role) == {"Query", "IngestByQueue", "IngestDirect", "Admin"}
    upload = ("s3:PutObject", "table-data-${AWS::AccountId}/for_ingest/*")
    assert upload in by_role["IngestByQueue"] & by_role["IngestDirect"]
    assert ("sqs:SendMessage", "ingest-jobs") in by_role["IngestByQueue"]
    assert ("sqs:SendMessage", "query") in by_role["Query"]
    assert ("sqs:ReceiveMessage", "query-results") in by_role["Query"]
    written_by_query = {resource for action, resource in by_role["Query"] if "Put" in action}
    assert written_by_query == set()
    deletions = {
        r for role in by_role.values() for action, r in role if action == "s3:DeleteObject"
    }
    assert deletions == {"config-${AWS::AccountId}/tables/*"}


def test_clients_that_commit_themselves_are_those_that_can_change_any_row(
    example: Synthesis,
) -> None:
    """IAM does not see what an entry of the log does, so to append is to be trusted."""
    appends = ("dynamodb:PutItem", "transaction-log")
    committing = {role for role, found in _client_permissions(example).items() if appends in found}
    assert committing == {"IngestDirect", "Admin"}


def test_what_only_reads_cannot_write_logs(example: Synthesis, platforms: Synthesis) -> None:
    writers = {
        where
        for synthesis in (example, platforms)
        for where, statement in synthesis.statements()
        if {"dynamodb:PutItem", "dynamodb:UpdateItem"} & set(as_list(statement["Action"]))
        for resource in as_list(statement.get("Resource", ()))
        if _text(resource).endswith("transaction-log")
    }
    reading = ("Query/", "Athena/", "Adjunct/", "BulkExport/", "Stash/", "WebSocket/")
    assert writers
    assert not [where for where in writers if where.startswith(reading)]
    assert {where.split("/")[1] for where in writers if where.startswith("HttpApi/")} <= {
        where.split("/")[1] for where in writers if where.startswith("HttpApi/AddTable")
    }


def test_results_can_be_kept_from_the_role_of_queries(
    example: Synthesis, with_dashboard: Synthesis
) -> None:
    results = {
        ("s3:ListBucket", "query-results-${AWS::AccountId}"),
        ("s3:GetObject", "query-results-${AWS::AccountId}/query-*"),
        ("sqs:ReceiveMessage", "query-results"),
        ("sqs:DeleteMessage", "query-results"),
    }
    for synthesis, is_shared in ((example, True), (with_dashboard, False)):
        by_role = _client_permissions(synthesis)
        assert results <= by_role["Admin"]
        assert results & by_role["Query"] == (results if is_shared else set())
        assert ("sqs:SendMessage", "query") in by_role["Query"]


def _client_permissions(synthesis: Synthesis) -> dict[str, set[tuple[str, str]]]:
    """Returns the actions of each role of clients, with their resources without the prefix."""
    by_role: dict[str, set[tuple[str, str]]] = {}
    for where, statement in synthesis.statements():
        if where.startswith("ClientRoles/") and "Resource" in statement:
            # A policy that is too long for the role is divided.
            role = re.split("Default|Overflow", where.split("/")[1])[0]
            by_role.setdefault(role, set()).update(
                (action, re.split("sleeper-[eE]xample-", _text(resource))[-1])
                for action in as_list(statement["Action"])
                for resource in as_list(statement["Resource"])
            )
    return by_role


def test_the_log_and_the_index_are_protected_from_deletion(
    example: Synthesis,
) -> None:
    """Not in the template of the table: a first deployment that fails could not be undone."""
    (resource,) = example.properties("Custom::SleeperProperties")
    assert resource["Protected"] == [
        "sleeper-example-table-index-by-name",
        "sleeper-example-table-index-by-id",
        "sleeper-example-table-index-by-online",
        "sleeper-example-transaction-log",
        "sleeper-example-ingest-batcher",
    ]
    assert resource["Protect"] == "true"
    protecting = [
        {_text(r).rpartition("/")[2] for r in as_list(statement["Resource"])}
        for where, statement in example.statements()
        if "dynamodb:UpdateTable" in as_list(statement["Action"])
    ]
    assert protecting == [set(resource["Protected"])]


def test_vpc_endpoints_allow_only_the_account_and_the_services_of_tasks(
    platforms: Synthesis,
) -> None:
    account = {"Ref": "AWS::AccountId"}
    endpoints = platforms.properties("AWS::EC2::VPCEndpoint")
    for endpoint in endpoints:
        for statement in endpoint["PolicyDocument"]["Statement"]:
            actions = set(as_list(statement["Action"]))
            reads = {"s3:GetObject", "s3:ListBucket"}
            # Layers of images, and users' sources in other accounts, are read.
            if not actions <= reads:
                assert statement["Condition"]["StringEquals"]["aws:PrincipalAccount"] == account
            if "s3:PutObject" in actions:
                assert statement["Condition"]["StringEquals"]["aws:ResourceAccount"] == account
    services = {
        action.partition(":")[0]
        for endpoint in endpoints
        for statement in endpoint["PolicyDocument"]["Statement"]
        for action in as_list(statement["Action"])
    }
    assert services == {"s3", "dynamodb", "ecr", "logs", "secretsmanager", "sqs"}


def test_the_orphan_collector_may_commit_the_accepted_time(example: Synthesis) -> None:
    actions = {
        action
        for name, statement in example.statements()
        if "Orphans" in name
        for action in as_list(statement["Action"])
    }
    assert {"dynamodb:PutItem", "dynamodb:UpdateItem", "s3:DeleteObject"} <= actions


def test_the_function_that_deletes_rows_changes_no_files_and_no_logs(example: Synthesis) -> None:
    allowed = [
        (action, json.dumps(resource))
        for where, statement in example.statements()
        if where.startswith("Deletion/")
        for action in as_list(statement["Action"])
        for resource in as_list(statement.get("Resource", ()))
    ]
    assert {action for action, _ in allowed if action.startswith("s3:")} == {
        "s3:AbortMultipartUpload", "s3:GetObject", "s3:ListBucket", "s3:PutObject",
    }  # fmt: skip
    objects = [resource for action, resource in allowed if action.startswith("s3:")]
    assert any("/log/" in resource for resource in objects)
    assert not any("/data/" in resource for resource in objects)
    written = [resource for action, resource in allowed if action == "s3:PutObject"]
    assert all("/commits/" in resource for resource in written)
    writes = {action for action, resource in allowed if "transaction-log" in resource}
    assert writes <= {"dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"}
