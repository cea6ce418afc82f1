"""Writes to and queries of a deployed instance by a client that uses docs/formats.md only.

The templates are deployed to ministack, which runs the functions of the zip, the WebSocket API,
queues and event sources, and lets every role do what its policies allow alone. `launcher` runs
tasks and functions from images, `spark_serverless` stands in for EMR Serverless. Rules that would
be due within a minute are made due at once.
"""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from websockets.exceptions import InvalidStatus

from tests.servers.ministack import ACCOUNT, Ministack
from tests.system.aws_user import AwsUser
from tests.system.deployed import (
    SERVERLESS_ARN,
    DeployedInstance,
    define_table,
    deploy,
    stopwatch,
    synthesise,
)
from tests.system.documents import ROOT, Surroundings, examples_in, run_example, says_as_shown
from tests.system.formats_client import encoded, frames_of
from tests.system.launcher import launcher
from tests.system.roles import find_refusals, is_allowed
from tests.system.spark_serverless import SparkServerless, spark_serverless
from tests.system.visits import (
    IMPORTED,
    INGESTED,
    VISITS,
    expected,
    key_of,
    list_rows,
    region,
    rows_of_json,
    visits,
)

pytestmark = pytest.mark.timeout(900)

# As the page on clients calls them.
INSTANCE_ID, UPLOADS = "mine", "uploads"
STACKS = (
    "IngestStack",
    "IngestBatcherStack",
    "QueryStack",
    "WebSocketQueryStack",
    "EmrServerlessBulkImportStack",
    "BulkExportStack",
)
INSTANCE = f"""
sleeper.id={INSTANCE_ID}
sleeper.optional.stacks={",".join(STACKS)}
sleeper.ingest.source.bucket={UPLOADS}
sleeper.ingest.max.concurrent.tasks=2
sleeper.task.idle.stop.seconds=5
sleeper.engine.threads=1
"""
TRIPS = {
    "rowKeyFields": [{"name": "id", "type": "StringType"}],
    "sortKeyFields": [{"name": "time", "type": "LongType"}],
    "valueFields": [{"name": "km", "type": "IntType"}],
}
TABLE_PROPERTIES = """
sleeper.table.ingest.batcher.ingest.queue=standard_ingest
sleeper.table.ingest.batcher.job.min.size=0
sleeper.table.ingest.batcher.job.min.files=2
sleeper.table.bulk.import.min.leaf.partitions=2
"""
SPLITS = ("G", "N", "T")
ALL_IDS = [{"id": {"min": None, "max": None}}]
LEAVES = len(SPLITS) + 1
_PERIOD_SECONDS = 2


def test_a_client_of_the_documented_formats_reads_the_rows_it_wrote(
    emulator: Ministack,
    emulator_environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emulator.client("s3").create_bucket(Bucket=UPLOADS)
    step = stopwatch()
    folder = tmp_path / "mine"
    define_table(folder, "visits", VISITS, TABLE_PROPERTIES, *SPLITS)
    define_table(folder, "trips", TRIPS, TABLE_PROPERTIES, "t3")
    (folder / "instance.properties").write_text(INSTANCE)
    output = tmp_path / "out"
    templates = synthesise(folder / "instance.properties", output, lambda_platform="code")
    instance = deploy(emulator.client, templates)
    step("deployed")
    user = AwsUser(emulator.client, INSTANCE_ID, ACCOUNT, UPLOADS)
    with ExitStack() as stack:
        place = tmp_path / "spark"
        spark = stack.enter_context(spark_serverless(emulator.client, emulator_environment, place))
        set_endpoints(instance, user, spark)
        running = stack.enter_context(launcher(instance, emulator_environment, tmp_path / "tasks"))
        with rules_are_due(user):
            check_writes(user, spark)
            step("taken in")
            check_exports(user)
            step("exported")
        rows_come_in_files(user)
        step("files")
        check_results_queue(user)
        step("queue")
        check_failures(user)
        check_external_bucket(instance, user)
        step("failed")
        check_websocket(user)
        step("websocket")
        with rules_are_due(user):
            check_clients_page(user, tmp_path, monkeypatch)
        step("page")
        check_bulk_import_runs(instance, user)
        step("looked after")
        assert {queue["dead"] for queue in user.report("queues")} == {0}
        assert running.failures == []
    refusals = find_refusals(tmp_path / "emulator", tmp_path / "tasks", tmp_path / "spark")
    assert refusals
    assert [line for line in refusals if "my-own" not in line] == []


@contextmanager
def rules_are_due(user: AwsUser) -> Iterator[None]:
    """Rules that start tasks, and the batcher, are due all the time."""
    stop = threading.Event()

    def fire() -> None:
        while not stop.wait(_PERIOD_SECONDS):
            user.fire("start-tasks-ingest", "start-tasks-bulk_export", "create-ingest-batches")

    with ThreadPoolExecutor(1) as thread:
        fired = thread.submit(fire)
        try:
            yield
        finally:
            stop.set()
    fired.result()


def set_endpoints(instance: DeployedInstance, user: AwsUser, spark: SparkServerless) -> None:
    """Sets the functions' endpoints of services outside the emulator."""
    frames = user.websocket_url().replace("ws:", "http:")
    for name in ("handle-websocket", "plan-query", "run-leaf-query"):
        message = {"AWS_ENDPOINT_URL_APIGATEWAYMANAGEMENTAPI": frames}
        instance.tell_function(f"{user.prefix}-{name}", message)
    for name in ("start-bulk-import", "watch-bulk-imports"):
        message = {"AWS_ENDPOINT_URL_EMR_SERVERLESS": spark.url}
        instance.tell_function(f"{user.prefix}-{name}-emr-serverless", message)


def check_writes(user: AwsUser, spark: SparkServerless) -> None:
    """Ingests by bulk import, message and batcher, in each form of docs/formats.md."""
    imported = [
        user.upload("bulk/0.parquet", visits(INGESTED, 1000)),
        user.upload_directly(visits(INGESTED + 1000, 1000)),
    ]
    requested = {"id": "b", "tableName": "visits", "files": [f"s3://{imported[0]}", imported[1]]}
    sizes = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "4"}
    user.send(
        "bulk.import.emr.serverless.job", {**requested, "sparkConf": sizes, "className": "any"}
    )

    files = [user.upload(f"in/{n}.parquet", visits(n * 1000, 1000)) for n in range(4)]
    files.append(user.upload_directly(visits(4000, 1000)))
    direct = user.upload_directly(visits(0, 1000))
    user.send("ingest.job", {"id": "i", "tableName": "visits", "files": [direct]})
    table_id = user.table_id("visits")
    nameless = {"tableId": table_id, "files": [f"s3a://{files[1]}"], "unknown": 1}
    user.send("ingest.job", nameless, by_name=True)
    user.upload("many/b/0.parquet", visits(2000, 1000))
    user.upload("many/none.parquet", pa.table({}))
    user.send("ingest.job", {"tableName": "visits", "files": [f"{UPLOADS}/many"]})
    user.send("ingest.batcher.submit", {"tableName": "visits", "files": [files[3]]})
    user.send("ingest.batcher.submit", {"tableName": "visits", "files": [files[4]]}, by_name=True)
    asked_before = 0

    def are_jobs_committed() -> bool:
        nonlocal asked_before
        asked_before += 1
        nowhere = {"destination": "NoResultsOutput"}
        query_id = f"count-{asked_before}"
        item = user.ask(query_id, ALL_IDS, "visits", resultsPublisherConfig=nowhere)
        assert item["lastKnownState"] == "COMPLETED"
        assert user.results(query_id) == {}
        return bool(item["rowCount"] == INGESTED + IMPORTED)

    user.until(are_jobs_committed, "all rows are in")
    (request,) = spark.asked.values()
    parameters = request["jobDriver"]["sparkSubmit"]["sparkSubmitParameters"]
    assert "--conf spark.driver.memory=1g" in parameters


def check_exports(user: AwsUser) -> None:
    """One file a leaf."""
    user.send("bulk.export", {"exportId": "e1", "tableName": "visits"})
    bucket = user.properties()["sleeper.bulk.export.results.bucket"]
    folder = f"{user.table_id('visits')}/e1/"
    results: dict[str, pa.Table] = {}

    def is_exported() -> bool:
        results.update(user.parquet_below(bucket, folder))
        return len(results) == LEAVES

    user.until(is_exported, "all is exported")
    assert list_rows(results.values()) == expected()


def rows_come_in_files(user: AwsUser) -> None:
    """Of several leaves and of one, all columns and some, from the results' bucket."""
    item = user.ask("all", ALL_IDS, "visits", statusReportDestinations=[])
    files = user.results("all")
    tracked = {item["subQueryId"]: item for item in user.tracked("all")}
    assert item["lastKnownState"] == "COMPLETED"
    assert tracked.pop("-") == item
    assert {name: table.num_rows for name, table in files.items()} == {
        name: item["rowCount"] for name, item in tracked.items()
    }
    assert len(files) == LEAVES
    assert {item["lastKnownState"] for item in tracked.values()} == {"COMPLETED"}
    assert item["rowCount"] == INGESTED + IMPORTED
    assert 85_000 < item["expiryDate"] - item["lastUpdateTime"] < 87_000
    assert list_rows(files.values()) == expected()

    item = user.ask("one", region("H", "J"), "visits", resultsPublisherConfig={"destination": "S3"})
    assert (item["lastKnownState"], len(user.results("one"))) == ("COMPLETED", 1)
    assert list_rows(user.results("one").values()) == expected("H", "J")

    plain = {"id": {"min": "F", "max": "H"}, "stringsBase64Encoded": False}
    two = [plain, *region("G5", "U")]
    user.ask("some", two, "visits", requestedValueFields=["count"])
    tables = user.results("some").values()
    assert {tuple(table.column_names) for table in tables} == {("id", "time", "count")}
    rows = sorted((row for table in tables for row in table.to_pylist()), key=key_of)
    fields = ("id", "time", "count")
    assert rows == [{name: row[name] for name in fields} for row in expected("F", "U")]

    item = user.ask("none", region("a", "b"), "visits")
    assert (item["lastKnownState"], item["rowCount"]) == ("COMPLETED", 0)


def check_results_queue(user: AwsUser) -> None:
    """In messages with the schema, of which there are as many as the last ones say."""
    url = user.make_queue(f"{user.prefix}-query-results-mine")
    to_queue = {"destination": "SQS", "sqsResultsUrl": url, "batchSize": 700}
    item = user.ask("queued", ALL_IDS, "visits", resultsPublisherConfig=to_queue)
    assert (item["lastKnownState"], item["rowCount"]) == ("COMPLETED", INGESTED + IMPORTED)
    messages = user.received(url)
    assert {message["queryId"] for message in messages} == {"queued"}
    assert max(len(message["rows"]) for message in messages) == 700
    assert all(message["schema"] == VISITS for message in messages)
    assert rows_of_json(row for message in messages for row in message["rows"]) == expected()
    counts = [message["messages"] for message in messages if "messages" in message]
    assert (len(counts), sum(counts)) == (LEAVES, len(messages))

    user.ask("empty", region("Ga", "Gb"), "visits", resultsPublisherConfig=to_queue)
    (message,) = user.received(url)
    assert (message["queryId"], message["rows"]) == ("empty", [])


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "table": ({"tableName": "unknown"}, "no table is named 'unknown'"),
    "field": ({"regions": [{"nope": {}}]}, "nope"),
    "range": ({"regions": [{"id": {"minimum": encoded("b")}}]}, "unknown member 'minimum'"),
    "column": ({"requestedValueFields": ["nope"]}, "nope"),
    "iterator": ({"queryTimeIteratorClassName": "Nope"}, "Nope"),
    "destination": ({"resultsPublisherConfig": {"destination": "NOWHERE"}}, "NOWHERE"),
    "type": ({"type": "Nonsense"}, "Nonsense"),
}


def check_failures(user: AwsUser) -> None:
    """The tracker has the reason. Denied writes to a bucket or queue are retried first."""
    reasons = {user.send("query", "hello"): "not JSON"}
    for name, (members, reason) in BAD.items():
        good = {"type": "Query", "queryId": name, "tableName": "visits", "regions": ALL_IDS}
        user.send("query", {**good, **members})
        reasons[name] = reason
    user.client("s3").create_bucket(Bucket="my-own")
    to_bucket = {"destination": "S3", "bucket": "my-own"}
    to_queue = {"destination": "SQS", "sqsResultsUrl": user.make_queue("my-own")}
    for name, target in (("to-bucket", to_bucket), ("to-queue", to_queue)):
        one = {"type": "Query", "queryId": name, "tableName": "visits", "regions": region("A", "B")}
        user.send("query", {**one, "resultsPublisherConfig": target})
        reasons[name] = "gave up after 5 tries"
    for query_id, reason in reasons.items():
        item = user.end_of(query_id)
        assert (item["lastKnownState"], item["rowCount"]) == ("FAILED", 0)
        assert reason in item["errors"]


def check_external_bucket(instance: DeployedInstance, user: AwsUser) -> None:
    """The bucket has its own policy, as documented for queries."""
    functions = ("plan-query", "run-leaf-query")
    roles = [instance.role_of_function(f"{user.prefix}-{name}") for name in functions]
    allow = {
        "Effect": "Allow",
        "Principal": {"AWS": roles},
        "Action": ["s3:PutObject", "s3:AbortMultipartUpload"],
        "Resource": "arn:aws:s3:::my-own/query-*",
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
    user.client("s3").put_bucket_policy(Bucket="my-own", Policy=policy)
    to_bucket = {"destination": "S3", "bucket": "my-own"}
    item = user.ask("let-in", ALL_IDS, "visits", resultsPublisherConfig=to_bucket)
    assert item["lastKnownState"] == "COMPLETED", item
    assert list_rows(user.results("let-in", "my-own").values()) == expected()


def check_websocket(user: AwsUser) -> None:
    """Frames arrive with one final frame. Unsigned connections are refused."""
    with pytest.raises(InvalidStatus, match="403"), user.live(signed=False):
        pass
    query = {"type": "Query", "tableName": "visits"}
    with user.live() as connection:
        frames = frames_of(connection, {**query, "queryId": "live", "regions": ALL_IDS})
        kinds = [kind for kind, _ in groupby(frame["message"] for frame in frames)]
        assert kinds == ["subqueries", "rows", "completed"]
        assert len(frames[0]["queryIds"]) == LEAVES
        assert len(frames) > 2 * LEAVES + 1
        ends = frames[-LEAVES:]
        assert {frame["queryId"] for frame in frames[:-LEAVES]} == {"live"}
        assert {end["queryId"] for end in ends} == set(frames[0]["queryIds"])
        assert sum(end["rowCount"] for end in ends) == INGESTED + IMPORTED
        assert all(end["locations"] == [] for end in ends)
        result = (row for frame in frames[1:-LEAVES] for row in frame["rows"])
        assert rows_of_json(result) == expected()

        one = {**query, "queryId": "live-1", "regions": region("H", "I")}
        frames = frames_of(connection, one)
        assert [frame["message"] for frame in frames] == ["rows", "completed"]
        assert rows_of_json(frames[0]["rows"]) == expected("H", "I")

        (frame,) = frames_of(connection, {**query, "tableName": "unknown", "regions": ALL_IDS})
        assert (frame["message"], "unknown" in frame["error"]) == ("error", True)
        (frame,) = frames_of(connection, {**one, "queryId": "live-2", "regions": [{"nope": {}}]})
        assert (frame["queryId"], "nope" in frame["error"]) == ("live-2", True)
        with pytest.raises(TimeoutError):
            connection.recv(timeout=0.5)


def check_clients_page(user: AwsUser, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's examples run in order, under its policy, and print the documented output."""
    page = (ROOT / "docs" / "clients.md").read_text()
    where = Surroundings(folder, {})
    with monkeypatch.context() as patch:
        policy = page.split("```json\n")[1].split("```")[0]
        policy = policy.replace("ACCOUNT:API/", f"{ACCOUNT}:{user.websocket_id()}/")
        _assume_user(user.client("iam"), policy, patch)
        for example in examples_in(page):
            output = run_example(example, where)
            assert says_as_shown(example.expected, output), f"line {example.line} says:\n{output}"
            # The emulator's own address, which needs neither DNS nor TLS.
            where.names["properties"]["sleeper.query.websocket.api.url"] = user.websocket_url()


def _assume_user(iam: Any, policy: str, patch: pytest.MonkeyPatch) -> None:
    """Assumes a user who has only the policy's permissions."""
    iam.create_user(UserName="page")
    document = policy.replace("ACCOUNT", ACCOUNT)
    iam.put_user_policy(UserName="page", PolicyName="page", PolicyDocument=document)
    key = iam.create_access_key(UserName="page")["AccessKey"]
    patch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    patch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
    # Which knows the credentials that were there when it was made.
    patch.setattr(boto3, "DEFAULT_SESSION", None)


def check_bulk_import_runs(instance: DeployedInstance, user: AwsUser) -> None:
    """Finished runs are removed. Functions have access to their own application only."""
    bucket, remaining = user.properties()["sleeper.bulk.import.bucket"], "runs/emr_serverless/"

    def is_forgotten() -> bool:
        s3 = user.client("s3")
        return "Contents" not in s3.list_objects_v2(Bucket=bucket, Prefix=remaining)

    user.until(is_forgotten, "runs are forgotten", "watch-emr-serverless")
    states = {job: message["state"] for job, message in user.jobs("bulk-import-jobs").items()}
    assert (states["b"], states["big"]) == ("committed", "committed")
    starter, watcher = (
        instance.role_of_function(f"{user.prefix}-{name}-emr-serverless")
        for name in ("start-bulk-import", "watch-bulk-imports")
    )
    for role, action, requested in (
        (starter, "StartJobRun", SERVERLESS_ARN),
        (watcher, "GetJobRun", f"{SERVERLESS_ARN}/jobruns/1"),
    ):
        assert is_allowed(user.client, role, f"emr-serverless:{action}", requested)
        other = requested.replace("00stand1n", "00other")
        assert not is_allowed(user.client, role, f"emr-serverless:{action}", other)
