"""The command line and the workflows on an AWS instance, over real servers.

S3 is SeaweedFS, DynamoDB is dynoxide, SQS and EventBridge are ministack's. A worker takes
the jobs in this process, as a task does.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.awsrequest import AWSResponse
from typer.testing import CliRunner

from sleeper.aws.clients import aws_client, check_owner
from sleeper.aws.config_bucket import INSTANCE_FILE
from sleeper.aws.instance import open_aws_instance
from sleeper.cli.main import app
from sleeper.clock import system_clock
from sleeper.committer import commit_messages
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.garbage_collection.service import (
    collect_table,
    collect_table_orphans,
    finish_deletions,
    sweep_abandoned,
)
from sleeper.instance import Instance
from sleeper.jobs.event import new_task_id
from sleeper.jobs.queue import QueueName
from sleeper.opening import open_instance
from sleeper.properties.deployed import DEPLOYED_QUEUES, SCHEDULE_ALARMS, SCHEDULE_RULES
from sleeper.properties.instance import REGION
from sleeper.reports.output import ReportKind
from sleeper.tables import TableId, TableState
from sleeper.workers.worker import Worker
from tests.servers.aws_clients import forget_clients
from tests.servers.aws_instance import AwsInstance
from tests.servers.ministack import ACCOUNT
from tests.unit.cli.conftest import CommandResult, Sleeper
from tests.wheels import make_wheel

SCHEMA = {
    "rowKeyFields": [{"name": "city", "type": "StringType"}],
    "sortKeyFields": [{"name": "year", "type": "IntType"}],
    "valueFields": [{"name": "people", "type": "LongType"}],
}
Row = dict[str, object]
FIRST_ONLY = """
class First:
    def __init__(self, schema, row_key, sort_key, config): ...
    def __call__(self, batches):
        last = None
        for batch in batches:
            keys = batch.column(0).to_pylist()
            first = [i for i, key in enumerate(keys) if key != ([last] + keys)[i]]
            last = keys[-1] if keys else last
            yield batch.take(first)
"""


@pytest.fixture
def instance(deployed_instance: AwsInstance) -> Iterator[Instance]:
    opened_instance = open_instance(deployed_instance.where)
    yield opened_instance
    opened_instance.close()


@pytest.fixture
def sleeper(
    deployed_instance: AwsInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Sleeper:
    """Runs a command on the instance."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLEEPER_INSTANCE", deployed_instance.where)

    def run(*arguments: object) -> CommandResult:
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        return CommandResult(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def cities(sleeper: Sleeper, tmp_path: Path) -> Sleeper:
    """With a table of two leaves."""
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "splits.txt").write_text("M\n")
    made = ("table", "create", "cities", "--schema", "schema.json", "--split-points", "splits.txt")
    ok(sleeper(*made, "--set", "sleeper.table.gc.delay.minutes=0"))
    return sleeper


@pytest.fixture
def work(instance: Instance) -> Callable[[], None]:
    """Runs the queued jobs, as a task does, and commits their results."""

    def until_idle() -> None:
        worker = Worker(instance, new_task_id(), threading.Event())
        while worker.run_one():
            pass
        commits = instance.jobs.queue(QueueName.COMMITS)
        while messages := commits.receive(10):
            assert commit_messages(instance, messages).failed == []
            for message in messages:
                commits.delete(message.receipt)

    return until_idle


def ok(result: CommandResult) -> CommandResult:
    assert result.status == 0, result.stderr
    return result


def make_rows(first: int, count: int) -> list[Row]:
    return [
        {"city": f"{'AZ'[i % 2]}{i:05}", "year": 1900 + i % 7, "people": i * i}
        for i in range(first, first + count)
    ]


def parquet(rows: list[Row]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return bytes(sink.getvalue())


def sort_rows(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["city"], row["year"]))


def put_object(deployed_instance: AwsInstance, key: str, body: bytes) -> str:
    deployed_instance.s3().put_object(Bucket=deployed_instance.source_bucket, Key=key, Body=body)
    return f"s3://{deployed_instance.source_bucket}/{key}"


def list_keys(deployed_instance: AwsInstance, bucket: str, prefix: str) -> list[str]:
    listing = deployed_instance.s3().list_objects_v2(Bucket=bucket, Prefix=prefix)
    return [result["Key"] for result in listing.get("Contents", ())]


def report(sleeper: Sleeper, kind: str) -> list[Row]:
    return ok(sleeper("report", kind, "--output", "json")).rows


def query(sleeper: Sleeper, *arguments: str) -> list[Row]:
    return ok(sleeper("query", "cities", *arguments, "--format", "json")).rows


def test_a_table_on_aws_is_ingested_split_compacted_queried_and_deleted(
    cities: Sleeper,
    deployed_instance: AwsInstance,
    work: Callable[[], None],
    tmp_path: Path,
) -> None:
    rows = make_rows(0, 4000)
    (tmp_path / "here.parquet").write_bytes(parquet(rows[:1000]))
    ok(cities("ingest", "cities", "here.parquet"))
    ok(
        cities(
            "ingest",
            "cities",
            put_object(deployed_instance, "one.parquet", parquet(rows[1000:2000])),
        )
    )
    put_object(deployed_instance, "many/a.parquet", parquet(rows[2000:3000]))
    folder = put_object(deployed_instance, "many/b.parquet", parquet(rows[3000:])).rpartition("/")[
        0
    ]
    job_id = ok(cities("ingest", "cities", folder, "--submit")).stdout.strip()
    (pending,) = (q for q in report(cities, "queues") if q["queue"] == "ingest")
    assert pending["visible"] == 1
    work()
    (job,) = (j for j in report(cities, "ingest-jobs") if j["job"] == job_id)
    assert (job["state"], job["rows_written"]) == ("committed", 2000)

    assert query(cities) == sort_rows(rows)
    ok(cities("compact", "cities", "--all"))
    work()
    assert query(cities) == sort_rows(rows)
    assert {len(report(cities, "files")), len(report(cities, "compaction-jobs"))} == {2}

    ok(cities("table", "set", "cities", "sleeper.table.partition.splitting.threshold=1500"))
    assert "2 leaves over the threshold" in ok(cities("split", "cities")).stderr
    ok(cities("compact", "cities", "--all"))
    work()
    assert len([p for p in report(cities, "partitions") if p["leaf"]]) == 4
    assert query(cities) == sort_rows(rows)
    assert query(cities, "--key", "A00100") == [rows[100]]
    total = sum(i * i for i in range(4000))
    statement = "SELECT count(*) AS n, sum(people) AS s FROM cities"
    (answer,) = ok(cities("sql", statement, "--format", "json")).rows
    assert answer == {"n": 4000, "s": total}

    ok(cities("gc", "cities", "--orphans"))
    assert query(cities) == sort_rows(rows)
    for number in range(2):
        (tmp_path / f"{number}.parquet").write_bytes(parquet(make_rows(5000 + number, 1)))
        ok(cities("ingest", "cities", f"{number}.parquet"))
        ok(cities("snapshot", "take", "cities"))
    for kind in ReportKind:
        ok(cities("report", kind))
    assert len(query(cities)) == 4002


def test_a_job_that_no_task_can_run_is_rejected_with_its_reason(
    cities: Sleeper, instance: Instance, work: Callable[[], None], tmp_path: Path
) -> None:
    (tmp_path / "here.parquet").write_bytes(parquet(make_rows(0, 1)))
    local = cities("ingest", "cities", "here.parquet", "--submit")
    assert (local.status, local.stdout) == (1, "")
    assert "here.parquet is not in S3" in local.stderr
    assert "omit --submit" in local.stderr
    missing = cities("ingest", "cities", "source/nothing.parquet")
    assert "source/nothing.parquet does not exist on this machine" in missing.stderr
    assert "no table is named 'towns'" in cities("ingest", "towns", "s3://b/k", "--submit").stderr

    ok(cities("ingest", "cities", "s3://other-bucket/k.parquet", "--submit", "--job-id", "j1"))
    send = instance.jobs.queue(QueueName.INGEST).send
    message_id = send('{"tableName":"cities","files":["file:///etc/passwd"]}')
    own = next(iter(instance.storage.root.buckets)).name
    send(json.dumps({"id": "own", "tableName": "cities", "files": [f"{own}/0/data/f.parquet"]}))
    work()
    reasons = {job["job"]: (job["state"], job["reason"]) for job in report(cities, "ingest-jobs")}
    assert reasons["j1"][0] == reasons[message_id][0] == "rejected"
    assert "bucket other-bucket is not an allowed source" in str(reasons["j1"][1])
    assert "file:///etc/passwd is not in S3" in str(reasons[message_id][1])
    assert reasons["own"][0] == "rejected"
    assert f"{own}/0/data/f.parquet: bucket {own} contains the instance's tables" in str(
        reasons["own"][1]
    )
    (counts,) = (q for q in report(cities, "queues") if q["queue"] == "ingest")
    assert (counts["visible"], counts["in_flight"], counts["dead"]) == (0, 0, 0)
    with pytest.raises(InvalidRequestError, match="contains the instance's tables"):
        instance.storage.sources.find(f"s3://{own}/0/data/")
    assert query(cities) == []


def test_an_upload_to_the_data_bucket_is_ingested_and_left_to_its_lifecycle_rule(
    cities: Sleeper, deployed_instance: AwsInstance, instance: Instance, work: Callable[[], None]
) -> None:
    """Clients of gchq/sleeper upload to `for_ingest/`; a rule of the bucket deletes it later."""
    (own,) = (bucket.name for bucket in instance.storage.root.buckets)
    key, rows = "for_ingest/0f.parquet", make_rows(0, 10)
    deployed_instance.s3().put_object(Bucket=own, Key=key, Body=parquet(rows))
    job = {"id": "direct", "tableName": "cities", "files": [f"{own}/{key}"]}
    instance.jobs.queue(QueueName.INGEST).send(json.dumps(job))
    work()
    assert query(cities) == sort_rows(rows)
    assert instance.storage.sources.find(f"{own}/{key}") == [
        (f"s3://{own}/{key}", len(parquet(rows)))
    ]
    with closing(open_aws_instance(deployed_instance.id, _in_four_weeks)) as much_later:
        collect_table_orphans(much_later, "cities")
        sweep_abandoned(much_later)
    assert list_keys(deployed_instance, own, "for_ingest/") == [key]


def _in_four_weeks() -> int:
    return system_clock() + 28 * 86_400_000


def test_a_dead_letter_returns_as_the_job_that_it_was(
    cities: Sleeper, deployed_instance: AwsInstance, instance: Instance, work: Callable[[], None]
) -> None:
    url = put_object(deployed_instance, "one.parquet", parquet(make_rows(0, 10)))
    queue = instance.jobs.queue(QueueName.INGEST)
    body = {"tableName": "cities", "files": [url], "more": "stays"}
    message_id = queue.send(json.dumps(body))
    die(deployed_instance, queue.receive)
    (letter,) = ok(cities("dead-letters", "list", "--output", "json")).rows
    assert (letter["queue"], letter["message"]) == ("ingest", message_id)
    (counts,) = (q for q in report(cities, "queues") if q["queue"] == "ingest")
    assert (counts["visible"], counts["dead"]) == (0, 1)

    assert (
        "returned 1 dead letter to queue ingest"
        in ok(cities("dead-letters", "redrive", "ingest")).stderr
    )
    (message,) = queue.receive()
    assert message.message_id != message_id
    assert json.loads(message.body) == {**body, "id": message_id}
    queue.release(message.receipt)
    work()
    (job,) = report(cities, "ingest-jobs")
    assert (job["job"], job["state"]) == (message_id, "committed")
    assert query(cities) == sort_rows(make_rows(0, 10))
    assert "has no dead letter" in cities("dead-letters", "delete", "ingest", message_id).stderr


def die(deployed_instance: AwsInstance, receive: Callable[[], object]) -> None:
    """Receives a message until it is a dead letter."""
    for _ in range(3):
        assert receive()
        deployed_instance.servers.others.pass_seconds(1000)
    assert not receive()


def test_changed_properties_warn_and_deployment_properties_are_refused(
    sleeper: Sleeper, deployed_instance: AwsInstance, instance: Instance
) -> None:
    changed = ok(sleeper("instance", "set", "sleeper.ingest.task.cpu=1024"))
    assert "takes effect at the next deployment" in changed.stderr
    assert ok(sleeper("instance", "get", "sleeper.ingest.task.cpu")).stdout == "1024\n"
    assert "warning" not in ok(sleeper("instance", "set", "sleeper.gc.batch.size=7")).stderr
    url = DEPLOYED_QUEUES["ingest"].url.name
    assert ok(sleeper("instance", "get", url)).stdout.startswith("http")
    refusals = sleeper("instance", "set", f"{url}=elsewhere")
    assert f"property {url} is set by the deployment" in refusals.stderr
    assert "cannot be 'many'" in sleeper("instance", "set", "sleeper.gc.batch.size=many").stderr
    stored_objects = (
        deployed_instance.s3()
        .get_object(
            Bucket=f"sleeper-{deployed_instance.id}-config-000000000000", Key="instance.properties"
        )["Body"]
        .read()
    )
    assert b"\nsleeper.gc.batch.size=7\n" in stored_objects


def test_schedules_are_paused_and_resumed(sleeper: Sleeper, instance: Instance) -> None:
    rules = instance.properties().get(SCHEDULE_RULES)

    (alarm,) = instance.properties().get(SCHEDULE_ALARMS)

    def states() -> set[str]:
        return {aws_client("events").describe_rule(Name=rule)["State"] for rule in rules}

    def is_silent() -> bool:
        (described,) = aws_client("cloudwatch").describe_alarms(AlarmNames=[alarm])["MetricAlarms"]
        return not described["ActionsEnabled"]

    assert ok(sleeper("pause")).stdout.splitlines() == list(rules)
    assert (states(), is_silent()) == ({"DISABLED"}, True)
    assert "resumed 2 schedules" in ok(sleeper("resume")).stderr
    assert (states(), is_silent()) == ({"ENABLED"}, False)


def test_local_operations_are_refused_on_aws_with_a_hint(sleeper: Sleeper) -> None:
    run = sleeper("run")
    assert (run.status, run.stdout) == (1, "")
    assert "runs its background work in lambdas" in run.stderr
    assert "cdk deploy" in sleeper("instance", "create").stderr


def test_a_deleted_table_leaves_nothing_behind(
    cities: Sleeper, deployed_instance: AwsInstance, instance: Instance, tmp_path: Path
) -> None:
    (tmp_path / "here.parquet").write_bytes(parquet(make_rows(0, 10)))
    ok(cities("ingest", "cities", "here.parquet"))
    ok(cities("table", "rename", "cities", "towns"))
    ok(cities("table", "offline", "towns"))
    assert "offline: it is not compacted" in cities("compact", "towns").stderr
    (row,) = report(cities, "tables")
    assert (row["name"], row["online"]) == ("towns", False)
    ref = instance.tables.index.find("towns")
    data = f"sleeper-{deployed_instance.id}-table-data-000000000000"
    assert list_keys(deployed_instance, data, ref.id)

    ok(cities("table", "delete", "towns", "--yes", "--now"))
    assert finish_deletions(instance) == 1
    assert list_keys(deployed_instance, data, "") == []
    assert list_keys(deployed_instance, data.replace("table-data", "config"), "tables") == []
    assert instance.tables.index.list(TableState.DELETING) == ()
    with (
        pytest.raises(NotFoundError, match="not initialised"),
        instance.tables.state(ref.id).reading(),
    ):
        pass


def test_a_clone_outlives_its_deleted_owner(
    cities: Sleeper,
    deployed_instance: AwsInstance,
    instance: Instance,
    work: Callable[[], None],
    tmp_path: Path,
) -> None:
    (tmp_path / "rows.parquet").write_bytes(parquet(make_rows(0, 10)))
    ok(cities("ingest", "cities", "rows.parquet"))
    ok(cities("delete", "cities", "--key", "A00000"))
    expected = cities("query", "cities", "--format", "csv").stdout
    cloned = ok(cities("table", "clone", "cities", "towns")).stderr
    assert cloned.startswith("cloned version 3 of cities as towns: 1 file, ")
    owner = instance.tables.index.find("cities").id
    ok(cities("table", "delete", "cities", "--yes", "--now"))
    assert finish_deletions(instance) == 0
    ok(cities("ingest", "towns", "rows.parquet", "--job-id", "again"))
    ok(cities("undo", "again"))
    assert cities("query", "towns", "--format", "csv").stdout == expected
    ok(cities("table", "restore", "towns", "--to", "4"))
    ok(cities("compact", "towns", "--all"))
    work()
    later = replace(instance, clock=lambda: system_clock() + 3_600_000)
    collect_table(later, "towns")
    assert finish_deletions(later) == 1
    data = f"sleeper-{deployed_instance.id}-table-data-000000000000"
    assert not list_keys(deployed_instance, data, owner)
    assert len(cities("query", "towns", "--format", "json").rows) == 19


def test_leftovers_of_a_killed_creation_are_removed_later(
    cities: Sleeper, deployed_instance: AwsInstance, instance: Instance
) -> None:
    remaining = instance.tables.index.find("cities").id
    dead = TableId("0badf00d")
    instance.tables.create(dead)
    instance.tables.properties.write(dead, instance.table("cities").properties())
    assert instance.tables.abandoned(0) == ()
    assert instance.tables.abandoned(instance.clock() + 60_000) == (dead,)
    assert sweep_abandoned(replace(instance, clock=lambda: system_clock() + 2 * 3_600_000)) == 1
    assert instance.tables.abandoned(instance.clock() + 60_000) == ()
    data = f"sleeper-{deployed_instance.id}-table-data-000000000000"
    assert {key.partition("/")[0] for key in list_keys(deployed_instance, data, "")} == {remaining}


def test_a_process_sees_at_once_what_another_has_committed(
    cities: Sleeper, deployed_instance: AwsInstance, instance: Instance, tmp_path: Path
) -> None:
    (tmp_path / "here.parquet").write_bytes(parquet(make_rows(0, 10)))
    with instance.table("cities").state.reading() as state:
        assert state.number == 1
    ok(cities("ingest", "cities", "here.parquet"))
    with instance.table("cities").state.reading() as state:
        assert state.files.totals().rows == 10
    # Both have a folder of their own, and the next process takes one of them up again.
    folders = tmp_path / "state" / deployed_instance.id
    assert {folder.name for folder in folders.iterdir()} == {"0", "1"}
    ok(cities("report", "state"))
    assert {folder.name for folder in folders.iterdir()} == {"0", "1"}


def test_a_missing_instance_is_named(
    deployed_instance: AwsInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFoundError, match="aws:nowhere is not in this account and region"):
        open_instance("aws:nowhere")
    with pytest.raises(InvalidRequestError, match="'no_id'"):
        open_instance("aws:no_id")
    monkeypatch.setenv(
        "SLEEPER_CONFIG_BUCKET", f"sleeper-{deployed_instance.id}-config-000000000000"
    )
    with pytest.raises(InvalidRequestError, match=f"belongs to instance '{deployed_instance.id}'"):
        open_instance("aws:other")


def test_a_config_bucket_of_another_account_is_refused(
    instance: Instance, deployed_instance: AwsInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners: list[str] = []

    def refuse_others(params: dict[str, Any], **_: object) -> tuple[Any, dict[str, Any]] | None:
        """Answers as AWS does, because the server ignores the account."""
        owners.append(params["headers"]["x-amz-expected-bucket-owner"])
        if owners[-1] == ACCOUNT:
            return None
        answer = {"ResponseMetadata": {"HTTPStatusCode": 403}, "Error": {"Code": "403"}}
        return AWSResponse("", 403, {}, None), answer

    forget_clients()
    check_owner.cache_clear()
    aws_client("s3").meta.events.register("before-call.s3.HeadObject", refuse_others)
    for _ in range(2):
        open_instance(instance.where).close()
    assert owners == [ACCOUNT]
    monkeypatch.setenv("SLEEPER_CONFIG_BUCKET_OWNER", "111111111111")
    bucket = f"sleeper-{deployed_instance.id}-config-{ACCOUNT}"
    for name in ("", bucket):
        monkeypatch.setenv("SLEEPER_CONFIG_BUCKET", name)
        with pytest.raises(InvalidRequestError, match="does not belong to account 111111111111"):
            open_instance(instance.where)
    monkeypatch.delenv("SLEEPER_CONFIG_BUCKET_OWNER")
    open_instance(instance.where).close()
    assert set(owners) == {ACCOUNT, "111111111111"}
    forget_clients()


@pytest.mark.parametrize(
    ("unset", "why"),
    [
        (("AWS_REGION", "AWS_DEFAULT_REGION"), "You must specify a region"),
        (("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "Unable to locate credentials"),
    ],
)
def test_missing_environment_variables_are_named(
    sleeper: Sleeper,
    deployed_instance: AwsInstance,
    monkeypatch: pytest.MonkeyPatch,
    unset: tuple[str, ...],
    why: str,
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    for variable in unset:
        monkeypatch.delenv(variable)
    forget_clients()
    for config_bucket in ("", f"sleeper-{deployed_instance.id}-config-000000000000"):
        monkeypatch.setenv("SLEEPER_CONFIG_BUCKET", config_bucket)
        failed = sleeper("table", "list")
        assert (failed.status, why in failed.stderr) == (1, True), failed.stderr


def test_the_instance_of_the_region_is_opened_if_another_has_its_id(
    instance: Instance, deployed_instance: AwsInstance
) -> None:
    """The bucket with the plain name is that of the other region."""
    client, plain = deployed_instance.s3(), f"sleeper-{deployed_instance.id}-config-{ACCOUNT}"
    region = deployed_instance.servers.s3.region
    text = client.get_object(Bucket=plain, Key=INSTANCE_FILE)["Body"].read().decode()
    elsewhere = text.replace(f"sleeper.region={region}", "sleeper.region=elsewhere")
    assert elsewhere != text
    client.put_object(Bucket=plain, Key=INSTANCE_FILE, Body=elsewhere.encode())
    with closing(open_instance(instance.where)) as opened:
        assert opened.properties().get(REGION) == "elsewhere"
    client.create_bucket(Bucket=f"{plain}-{region}")
    client.put_object(Bucket=f"{plain}-{region}", Key=INSTANCE_FILE, Body=text.encode())
    with closing(open_instance(instance.where)) as opened:
        assert opened.properties().get(REGION) == region
    client.delete_object(Bucket=plain, Key=INSTANCE_FILE)
    with closing(open_instance(instance.where)) as opened:
        assert opened.properties().get(REGION) == region


def test_sorts_and_merges_spill_where_the_property_says(
    cities: Sleeper, instance: Instance, tmp_path: Path
) -> None:
    assert instance.storage.spill_folder().is_relative_to(tmp_path / "state")
    ok(cities("instance", "set", f"sleeper.spill.directory={tmp_path / 'spill'}"))
    (tmp_path / "here.parquet").write_bytes(parquet(make_rows(0, 10)))
    ok(cities("ingest", "cities", "here.parquet"))
    with closing(open_instance(instance.where)) as opened_instance:
        assert opened_instance.storage.spill_folder().is_relative_to(tmp_path / "spill")


def test_user_code_is_stored_in_the_config_bucket_and_runs(
    cities: Sleeper, instance: Instance, tmp_path: Path
) -> None:
    wheel = make_wheel(
        tmp_path / "wheels", "aws_code", {"aws_code": FIRST_ONLY}, {"First": "aws_code:First"}
    )
    ok(cities("code", "add", wheel))
    listing = ok(cities("code", "list", "--output", "json")).rows
    assert "First" in {row["name"] for row in listing}
    twice = make_rows(0, 4) + [{**row, "people": -1} for row in make_rows(0, 4)]
    (tmp_path / "here.parquet").write_bytes(parquet(twice))
    ok(cities("ingest", "cities", "here.parquet"))
    ok(cities("table", "set", "cities", "sleeper.table.iterator.class.name=First"))
    assert [row["city"] for row in query(cities)] == [r["city"] for r in sort_rows(make_rows(0, 4))]
