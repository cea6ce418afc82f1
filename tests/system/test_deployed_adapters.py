"""Adapters and stashes of a deployed instance: rules start them, and tasks do the work."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.adapters.definition import Adapter, FilesSource, TableSink, TableSource
from sleeper.adapters.store import AdapterStore
from sleeper.instance import Instance
from sleeper.opening import open_instance
from sleeper.schedule import make_schedule
from sleeper.stash import Stash
from sleeper.stash.layout import root_name
from sleeper.stash.schedules import ScheduleStore
from tests.handlers.conftest import SCHEDULED
from tests.servers.ministack import ACCOUNT, Ministack
from tests.system.aws_user import AwsUser
from tests.system.deployed import define_table, deploy, stopwatch, synthesise
from tests.system.launcher import Launcher, call, launcher
from tests.system.roles import find_refusals

pytestmark = pytest.mark.timeout(600)

INSTANCE_ID, UPLOADS = "Adapt", "uploads"
INSTANCE = f"""
sleeper.id={INSTANCE_ID}
sleeper.optional.stacks=AdapterStack,StashStack
sleeper.ingest.source.bucket={UPLOADS}
sleeper.adapter.max.concurrent.tasks=1
sleeper.stash.max.concurrent.tasks=1
sleeper.task.idle.stop.seconds=1
sleeper.engine.threads=1
"""
SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [{"name": "v", "type": "LongType"}],
}
SNAPSHOT = "sleeper.table.type=snapshot\n"
RULES = ("start-adapters", "start-tasks-adapter")
HOUR_MS = 3_600_000


@contextmanager
def opened() -> Iterator[Instance]:
    with closing(open_instance(f"aws:{INSTANCE_ID}")) as instance:
        yield instance


def set_schedule(name: str, hours_ago: float) -> None:
    """Sets a schedule of every hour as of then."""
    with opened() as instance:
        store = AdapterStore(instance.storage.root)
        since_ms = instance.clock() - round(hours_ago * HOUR_MS)
        store.replace(replace(store.get(name), schedule=make_schedule("1h", since_ms)))


def adapter_states(user: AwsUser) -> list[str]:
    return sorted(job["state"] for job in user.report("adapter-jobs"))


def schedule_due_stash(user: AwsUser, destination: str) -> str:
    """Schedules a stash of every hour that has been due for half an hour. Returns its name."""
    user.sleeper("stash", "schedule", "1h", "--destination", destination, "--table", "orders")
    with opened() as instance:
        store = ScheduleStore(instance.storage.root)
        since_ms = instance.clock() - 3 * HOUR_MS // 2
        schedule = make_schedule("1h", since_ms)
        store.put(replace(store.find(destination), schedule=schedule))
    return root_name(since_ms + HOUR_MS)


def check_stashes(user: AwsUser, running: Launcher, folder: Path) -> None:
    """Submits a stash and schedules one, which the function and a task of the instance make."""
    bucket = f"s3://{user.properties()['sleeper.stash.bucket']}"
    submit = ("stash", "run", "--submit", "--destination")
    elsewhere = user.sleeper(*submit, f"s3://{UPLOADS}", status=1)
    assert f"destination s3://{UPLOADS} is not in the bucket" in elsewhere.stderr
    names = {"daily": user.sleeper(*submit, f"{bucket}/daily").stdout.strip()}
    names["hourly"] = schedule_due_stash(user, f"{bucket}/hourly")
    counts: Counter[str] = Counter()
    with running.image_function(f"{user.prefix}-advance-stashes") as advance:

        def are_complete() -> bool:
            counts.update(call(advance, SCHEDULED))
            assert counts["failed"] == counts["problems"] == 0
            return counts["completed"] == len(names)

        user.until(are_complete, "the stashes are complete", "start-tasks-stash")
        call(advance, SCHEDULED)
    assert counts["started"] == 1
    for place, tables in {"daily": ["copy", "orders"], "hourly": ["orders"]}.items():
        destination = f"{bucket}/{place}"
        latest = user.sleeper("stash", "latest", "--destination", destination).stdout.strip()
        assert latest == names[place]
        stash = Stash.open(destination)
        assert stash.tables() == tables
        for table in tables:
            with stash.scan(table) as rows:
                found = [{"k": row["k"], "v": row["v"]} for row in rows]
            assert found == user.rows(table, folder).to_pylist()


def test_a_scheduled_adapter_loads_a_table_another_copies_it_and_tasks_make_stashes(
    emulator: Ministack, emulator_environment: dict[str, str], tmp_path: Path
) -> None:
    emulator.client("s3").create_bucket(Bucket=UPLOADS)
    folder, step = tmp_path / "mine", stopwatch()
    for name in ("orders", "copy"):
        define_table(folder, name, SCHEMA, SNAPSHOT)
    (folder / "instance.properties").write_text(INSTANCE)
    output = tmp_path / "out"
    templates = synthesise(folder / "instance.properties", output, lambda_platform="code")
    instance = deploy(emulator.client, templates)
    step("deployed")
    user = AwsUser(emulator.client, INSTANCE_ID, ACCOUNT, UPLOADS)
    file = user.upload("orders/all.parquet", pa.table({"k": [1, 2, 3], "v": [1, 2, 3]}))
    with opened() as ports:
        store = AdapterStore(ports.storage.root)
        store.create(Adapter("orders", FilesSource((f"s3://{file}",)), TableSink("orders")))
        store.create(Adapter("copy", TableSource("orders"), TableSink("copy")))
    with (
        user.as_administrator(),
        launcher(instance, emulator_environment, tmp_path / "tasks") as running,
    ):
        set_schedule("orders", 1.5)
        user.until(lambda: adapter_states(user) == ["committed"], "the load is done", *RULES)
        step("loaded")
        user.upload("orders/all.parquet", pa.table({"k": [1, 3], "v": [1, 4]}))
        set_schedule("orders", 2.25)
        user.until(lambda: len(adapter_states(user)) == 2, "the second run is due", *RULES)
        user.until(lambda: adapter_states(user) == ["committed"] * 2, "it is done", *RULES)
        assert user.rows("orders", tmp_path).to_pydict() == {"k": [1, 3], "v": [1, 4]}
        first, second = user.sleeper("snapshot", "versions", "orders", "--output", "json").rows
        rows = {each["version"]: each["rows"] for each in (first, second)}
        assert sorted(rows.values()) == [2, 3]
        step("loaded again")
        set_schedule("copy", 1.5)
        user.until(lambda: adapter_states(user) == ["committed"] * 3, "the copy is done", *RULES)
        assert pq.read_table(tmp_path / "orders.parquet").equals(user.rows("copy", tmp_path))
        step("copied")
        check_stashes(user, running, tmp_path)
        assert "start-adapters" in user.sleeper("pause").stdout
        assert {queue["dead"] for queue in user.report("queues")} == {0}
        assert running.failures == []
        step("stashed")
    assert find_refusals(tmp_path / "emulator", tmp_path / "tasks") == []
