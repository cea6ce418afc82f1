"""A deployed instance in operation, from the synthesised templates to a destroyed stack.

The templates are deployed to ministack, which runs the functions' code, rules, queues and event
sources; `launcher` runs tasks and functions from images. Everything else the instance does by
itself, while a user uploads files and sends messages. Libraries are not in the zip here, because
unpacking them for each function takes longer than all else: `test_deployed_instance` has them.
"""

import json
import signal
import time
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from tests.servers.ministack import ACCOUNT, Ministack
from tests.system.aws_user import AwsUser
from tests.system.deployed import (
    DeployedInstance,
    define_table,
    deploy,
    destroy,
    stopwatch,
    synthesise,
)
from tests.system.launcher import Launcher, launcher
from tests.system.roles import find_refusals

pytestmark = pytest.mark.timeout(1500)

UPLOADS = "uploads"
STACKS = (
    "IngestStack",
    "IngestBatcherStack",
    "CompactionStack",
    "PartitionSplittingStack",
    "GarbageCollectorStack",
)
INSTANCE = f"""
sleeper.id=Sys.Test
sleeper.optional.stacks={",".join(STACKS)}
sleeper.ingest.source.bucket={UPLOADS}
sleeper.ingest.max.concurrent.tasks=2
sleeper.compaction.max.concurrent.tasks=2
sleeper.ingest.queue.visibility.timeout.seconds=20
sleeper.ingest.keepalive.period.seconds=5
sleeper.task.idle.stop.seconds=5
sleeper.engine.threads=1
sleeper.snapshot.transactions.min=1
sleeper.default.table.gc.delay.minutes=0
"""
EVENTS = {
    "rowKeyFields": [{"name": "id", "type": "StringType"}],
    "sortKeyFields": [{"name": "time", "type": "LongType"}],
    "valueFields": [
        {"name": "count", "type": "IntType", "nullable": True},
        {"name": "tags", "type": {"ListType": {"elementType": "StringType"}}},
    ],
}
EVENTS_PROPERTIES = """
sleeper.table.partition.splitting.threshold=2000
sleeper.table.compaction.strategy.class=BasicCompactionStrategy
sleeper.table.compaction.files.batch.size=2
sleeper.table.ingest.batcher.ingest.queue=standard_ingest
sleeper.table.ingest.batcher.job.min.size=0
sleeper.table.ingest.batcher.job.min.files=2
"""
READINGS = {
    "rowKeyFields": [{"name": "device", "type": "IntType"}],
    "valueFields": [{"name": "value", "type": "LongType"}],
}
# So many rows that a task is busy for seconds.
MANY = 3_000_000
TRIES_TO_KILL, KILL_AFTER_SECONDS = 3, 0.5
INGEST = ("start-tasks-ingest",)
SHAPE = (
    "find-partitions-to-split",
    "compaction-job-creation",
    "start-tasks-compaction",
    "garbage-collection",
    # It switches the polls of their queues on.
    "watch-instance",
)
# What clients send: integers as INT64, columns in an order of their own.
UPLOADED = pa.schema(
    [
        ("tags", pa.list_(pa.string())),
        ("count", pa.int64()),
        ("time", pa.int64()),
        ("id", pa.string()),
    ]
)
STORED = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("time", pa.int64(), nullable=False),
        ("count", pa.int32()),
        pa.field(
            "tags", pa.list_(pa.field("element", pa.string(), nullable=False)), nullable=False
        ),
    ]
)


def events(first: int, count: int) -> pa.Table:
    """Rows as a client uploads them, from all over the key space."""
    rows = [
        {
            "id": f"{chr(65 + i * 7 % 26)}{i:07}",
            "time": i * 1_000_003,
            "count": None if i % 11 == 0 else i,
            "tags": [f"t{i % 3}"] * (i % 3),
        }
        for i in range(first, first + count)
    ]
    return pa.Table.from_pylist(rows, UPLOADED)


def sort_rows(*tables: pa.Table) -> pa.Table:
    """As they are read back: the table's columns, sorted."""
    rows = pa.concat_tables(tables).select(STORED.names).sort_by([("id", "ascending")])
    return rows.cast(STORED)


def readings(devices: range) -> pa.Table:
    """Rows of the other table, in the order of the devices."""
    numbers = pa.array(devices, pa.int64())
    return pa.table({"value": numbers, "device": numbers})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of properties, with one table."""
    place = tmp_path / "mine"
    define_table(place, "events", EVENTS, EVENTS_PROPERTIES, "M")
    (place / "instance.properties").write_text(INSTANCE)
    return place


def make_user(instance: DeployedInstance) -> AwsUser:
    instance_id = instance.outputs["Instance"].removeprefix("aws:")
    return AwsUser(instance.client, instance_id, ACCOUNT, UPLOADS)


def test_a_deployed_instance_ingests_splits_and_compacts(
    emulator: Ministack, folder: Path, emulator_environment: dict[str, str], tmp_path: Path
) -> None:
    emulator.client("s3").create_bucket(Bucket=UPLOADS)
    step = stopwatch()
    templates = synthesise(folder / "instance.properties", tmp_path / "out", lambda_platform="code")
    instance = deploy(emulator.client, templates)
    step("deployed")
    user = make_user(instance)
    with (
        user.as_administrator(),
        launcher(instance, emulator_environment, tmp_path / "tasks") as running,
    ):
        message = check_ingest(user)
        step("taken in")
        bad_messages_are_rejected_with_their_reasons(user)
        step("rejected")
        check_second_table(user, tmp_path)
        step("second table")
        check_killed_task(user, running, tmp_path)
        step("killed")
        check_maintenance(user, message, tmp_path)
        step("in shape")
        message = check_paused_schedules(user, running, message)
        step("dead letters")
        check_snapshots(user, message)
        step("trimmed")
        every_report_reads(user)
        check_watch(user, instance)
        step("reports")
        assert user.rows("events", tmp_path).equals(sort_rows(*message))
        check_table_deletion(user)
        step("swept")
        assert running.failures == []
    assert find_refusals(tmp_path / "emulator", tmp_path / "tasks") == []
    destroy(instance)
    check_destroyed_stack(user)
    step("destroyed")


def check_ingest(user: AwsUser) -> list[pa.Table]:
    """Ingests by message and batcher, in each form of docs/formats.md."""
    messages = [events(first, 1000) for first in range(0, 8000, 1000)]
    files = [user.upload(f"in/{n}.parquet", rows) for n, rows in enumerate(messages[:3])]
    user.upload("many/a.parquet", messages[3])
    user.upload("many/b/c.parquet", messages[4])
    files.append(user.upload("in/none.parquet", pa.table({})))
    user.send("ingest.job", {"id": "url", "tableName": "events", "files": [files[0]]})
    twice = {"id": "twice", "tableName": "events", "files": [f"s3://{files[1]}"]}
    for _ in range(3):
        user.send("ingest.job", twice, by_name=True)
    ids = {"url", "twice", "empty", "id"}
    nameless = {"tableName": "events", "files": [f"s3a://{files[2]}", f"{UPLOADS}/many"]}
    ids.add(user.send("ingest.job", nameless, by_name=True))
    user.send("ingest.job", {"id": "empty", "tableName": "events", "files": [files[3]]})
    (table,) = user.report("tables")
    late = {"id": "id", "tableId": table["id"], "files": [user.upload("in/5.parquet", messages[5])]}
    user.send("ingest.job", late)

    small = [user.upload(f"small/{n}.parquet", rows) for n, rows in enumerate(messages[6:])]
    user.send("ingest.batcher.submit", {"tableName": "events", "files": [small[0]]})
    user.send("ingest.batcher.submit", {"tableName": "events", "files": [small[1]]})

    def are_jobs_committed() -> bool:
        jobs = user.jobs()
        batched = [j for name, j in jobs.items() if name not in ids and j["files"] == 2]
        calls = [*(jobs[i] for i in ids if i in jobs), *batched]
        return len(calls) == 6 and {job["state"] for job in calls} == {"committed"}

    user.until(are_jobs_committed, "jobs are committed", *INGEST, "create-ingest-batches")
    (counts,) = (q for q in user.report("queues") if q["queue"] == "ingest")
    assert counts["dead"] == 0
    assert user.state("events")["rows"] == 8000
    return messages


BAD: dict[str, tuple[str, str]] = {
    "no JSON": ("hello", "not JSON"),
    "no files": ('{"tableName":"events"}', '"files" is missing'),
    "no table": ('{"files":["uploads/in/0.parquet"]}', '"tableId" is missing'),
    "unknown table": (
        '{"tableName":"unknown","files":["uploads/in/0.parquet"]}',
        "no table is named 'unknown'",
    ),
    "missing file": ('{"tableName":"events","files":["uploads/none.parquet"]}', "does not exist"),
    "foreign bucket": (
        '{"tableName":"events","files":["others/a.parquet"]}',
        "not an allowed source",
    ),
    "over the limit": (
        json.dumps({"id": "j" * 501, "tableName": "events", "files": ["uploads/in/0.parquet"]}),
        "(expected at most 500 bytes)",
    ),
}


def bad_messages_are_rejected_with_their_reasons(user: AwsUser) -> None:
    """Each under its message's id; the good ones among them go on."""
    wrong = user.upload("in/wrong.parquet", pa.table({"id": ["a"], "time": [1], "count": ["x"]}))
    bad = {user.send("ingest.job", body): reason for body, reason in BAD.values()}
    bad |= {
        user.send("ingest.batcher.submit", BAD[name][0]): BAD[name][1]
        for name in ("no JSON", "no files", "unknown table", "missing file")
    }
    bad[user.send("ingest.job", {"tableName": "events", "files": [wrong]})] = "wrong.parquet"
    again = {"id": "again", "tableName": "events", "files": [f"{UPLOADS}/in/none.parquet"]}
    user.send("ingest.job", again)
    with pytest.raises(Exception, match=r"(?i)must be shorter|too long|1048576"):
        user.send("ingest.job", "x" * 1_100_000)

    def all_are_settled() -> bool:
        jobs = user.jobs()
        return {"again", *bad} <= set(jobs) and all(
            jobs[item]["state"] in ("rejected", "committed") for item in ("again", *bad)
        )

    user.until(all_are_settled, "bad messages are rejected", *INGEST)
    jobs = user.jobs()
    assert jobs["again"]["state"] == "committed"
    for message_id, reason in bad.items():
        assert jobs[message_id]["state"] == "rejected"
        assert reason in jobs[message_id]["reason"]
    assert {queue["dead"] for queue in user.report("queues")} == {0}


def check_second_table(user: AwsUser, folder: Path) -> None:
    """A table created from the command line is usable by functions and tasks immediately."""
    (folder / "schema.json").write_text(json.dumps(READINGS))
    user.sleeper("table", "create", "readings", "--schema", folder / "schema.json")
    file = user.upload("readings.parquet", readings(range(50, 0, -1)))
    user.send("ingest.job", {"id": "r", "tableName": "readings", "files": [file]})
    user.until(lambda: user.has_come("r", "committed"), "r is in", *INGEST)
    assert user.rows("readings", folder)["device"].to_pylist() == list(range(1, 51))


def check_killed_task(user: AwsUser, running: Launcher, folder: Path) -> None:
    """A task is killed during its job; another runs the job when the message returns."""
    expected = readings(range(1, 51))
    for attempt in range(TRIES_TO_KILL):
        more = readings(range((attempt + 1) * MANY, (attempt + 2) * MANY))
        expected = pa.concat_tables([expected, more])
        job = f"dies-{attempt}"
        file = user.upload(f"in/{job}.parquet", more)
        user.send("ingest.job", {"id": job, "tableName": "readings", "files": [file]})
        user.fire(*INGEST)
        user.until(partial(user.in_flight, "ingest.job"), "a task takes the job", pause=0.1)
        time.sleep(KILL_AFTER_SECONDS)
        running.kill("ingest")
        was_in_midst = user.in_flight("ingest.job")
        user.until(partial(user.has_come, job, "committed"), "the job is done", *INGEST)
        if was_in_midst:
            break
    else:
        pytest.fail("no task could be killed before its job was done")
    assert -signal.SIGKILL in running.exit_statuses
    rows = user.rows("readings", folder)
    assert rows.equals(expected.select(rows.column_names).cast(rows.schema))


def check_maintenance(user: AwsUser, tables: list[pa.Table], folder: Path) -> None:
    """Leaves are split to their threshold and compacted, and replaced files are deleted."""

    def is_maintained() -> bool:
        state = user.state("events")
        return (
            state["leaves"] > 4
            and state["compaction_jobs"] == state["waiting_for_collection"] == 0
            and state["files"] <= state["leaves"]
        )

    user.until(is_maintained, "the table is in shape", *SHAPE)
    jobs = user.jobs("compaction-jobs").values()
    # Only the committer tells so, and it is given commits by the queue alone.
    assert {job["state"] for job in jobs} == {"committed"}
    all_rows = sort_rows(*tables)
    assert user.rows("events", folder).equals(all_rows)
    first = all_rows.slice(0, 1).to_pylist()[0]
    requested = ("query", "events", "--key", first["id"], "--format", "json")
    assert user.sleeper(*requested).rows == [first]
    output = user.sleeper("sql", "SELECT count(*) AS n, max(time) AS t FROM events")
    assert f"{all_rows.num_rows}" in output.stdout.replace(",", "")


def check_paused_schedules(
    user: AwsUser, running: Launcher, tables: list[pa.Table]
) -> list[pa.Table]:
    """No task starts while schedules are paused; a command redrives the dead letters."""
    paused = user.sleeper("pause").stdout.splitlines()
    assert f"{user.prefix}-start-tasks-ingest" in paused
    user.until(lambda: running.running == 0, "tasks end")
    more = events(5_000_000, 1000)
    file = user.upload("in/dead.parquet", more)
    message_id = user.send("ingest.job", {"tableName": "events", "files": [file]})
    sqs, url = user.client("sqs"), user.properties()["sleeper.ingest.job.queue.url"]
    for _ in range(3):
        assert sqs.receive_message(QueueUrl=url, VisibilityTimeout=0)["Messages"]
        user.fire(*INGEST)
    assert not sqs.receive_message(QueueUrl=url).get("Messages")
    assert running.running == 0
    (letter,) = user.sleeper("dead-letters", "list", "--output", "json").rows
    assert (letter["queue"], letter["message"]) == ("ingest", message_id)
    assert (
        "returned 1 dead letter to queue ingest"
        in user.sleeper("dead-letters", "redrive", "ingest").stderr
    )
    assert user.sleeper("resume").stdout.splitlines() == paused
    result = "the dead letter is in"
    user.until(lambda: user.jobs().get(message_id, {}).get("state") == "committed", result, *INGEST)
    return [*tables, more]


def check_snapshots(user: AwsUser, tables: list[pa.Table]) -> None:
    """Two snapshots, each with changes since the one before, and a log that begins later."""

    def is_trimmed() -> bool:
        table = "sleeper-Sys.Test-transaction-log"
        heads = [
            item
            for item in user.client("dynamodb").scan(TableName=table)["Items"]
            if item["item"]["S"] == "head"
        ]
        return any(int(head.get("trimmed", {"N": "0"})["N"]) > 0 for head in heads)

    user.until(is_trimmed, "the log is trimmed", "state-snapshots", *SHAPE)
    assert user.state("events")["snapshots"]


def every_report_reads(user: AwsUser) -> None:
    """As text and as JSON, with the lengths of the queues."""
    for kind in ("tables", "files", "partitions", "state", "tasks", "queries", "costs", "all"):
        assert user.sleeper("report", kind).stdout
        assert user.report(kind) or kind == "queries"
    queues = {queue["queue"]: queue for queue in user.report("queues")}
    assert {"ingest", "compaction", "splitting", "commits", "ingest_batcher"} <= set(queues)
    assert all(queue["dead"] == 0 for queue in queues.values())
    assert {task["state"] for task in user.report("tasks")} >= {"ended"}


def check_watch(user: AwsUser, instance: DeployedInstance) -> None:
    """It may read everything that it looks at, also what it looks at each hour."""
    name = f"{user.prefix}-watch-instance"
    instance.tell_function(name, {"SLEEPER_WATCH_MINUTES": "60"})
    answer = instance.client("lambda").invoke(FunctionName=name, Payload=b"{}")
    assert "FunctionError" not in answer
    counts = json.loads(answer["Payload"].read())
    # The jobs and tasks that this test made fail are problems, and nothing else is.
    assert set(counts) <= {"Failing", "OldestMessageSeconds"}


def check_table_deletion(user: AwsUser) -> None:
    """Its objects, log and properties are deleted."""
    (table,) = (t for t in user.report("tables") if t["name"] == "readings")
    user.sleeper("table", "delete", "readings", "--yes", "--now")
    data = user.properties()["sleeper.data.bucket"]

    def is_gone() -> bool:
        s3 = user.client("s3")
        return "Contents" not in s3.list_objects_v2(Bucket=data, Prefix=f"{table['id']}/")

    user.until(is_gone, "the table is swept", "sweep-instance")
    assert [t["name"] for t in user.report("tables")] == ["events"]


def check_destroyed_stack(user: AwsUser) -> None:
    """Queues, functions and rules are gone.

    That data stays is in the templates (`tests/infra`): nested stacks keep nothing here.
    """
    queues = user.client("sqs").list_queues(QueueNamePrefix=user.prefix)
    assert queues.get("QueueUrls", []) == []
    listing = user.client("lambda").list_functions()["Functions"]
    assert [f for f in listing if f["FunctionName"].startswith(user.prefix)] == []
    assert user.client("events").list_rules(NamePrefix=user.prefix)["Rules"] == []
