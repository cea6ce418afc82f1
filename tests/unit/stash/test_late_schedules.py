"""Schedules that cannot copy a table, or cannot start: the rest goes on, and reports show it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sleeper.admin.tables import create_table, delete_table
from sleeper.errors import InvalidRequestError
from sleeper.ingest.service import ingest_paths
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.reports.output import Listing, json_rows
from sleeper.stash import Stash
from sleeper.stash.control import ControlReport, control_stashes
from sleeper.stash.due import start_due_stashes
from sleeper.stash.layout import root_name
from sleeper.stash.listings import list_schedules
from sleeper.stash.message import run_stash_message
from sleeper.stash.record_index import StashRecords
from sleeper.stash.schedules import schedule_stash
from sleeper.stash.status import get_status, list_statuses, list_table_statuses
from tests.clock import DAY_MS, START_MS, FakeClock

SCHEMA = '{"rowKeyFields": [{"name": "k", "type": "LongType"}]}'
FIRST = root_name(START_MS + DAY_MS)
LATE_MS = 6 * 60_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def instance(tmp_path: Path, clock: FakeClock) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance", "test")
    with closing(open_local_instance(tmp_path / "instance", clock)) as opened:
        yield opened


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "stash")


def add_table(instance: Instance, tmp_path: Path, name: str, key: int) -> None:
    create_table(instance, name, SCHEMA)
    file = tmp_path / f"{key}.csv"
    file.write_text(f"k\n{key}\n")
    ingest_paths(instance, name, [str(file)], f"job-{key}")


def make_due(instance: Instance) -> ControlReport:
    """Makes the stash that is due, as workers do. Returns the report of its plan."""
    assert len(start_due_stashes(instance).started) == 1
    report = control_stashes(instance)
    queue = instance.jobs.queue(QueueName.STASH)
    for message in queue.receive(10):
        run_stash_message(instance, message)
        queue.delete(message.receipt)
    assert control_stashes(instance).completed == report.planned
    return report


def rows_of(listing: Listing) -> list[dict[str, Any]]:
    return list(json_rows(listing))


def keys(place: str, table: str) -> list[int]:
    with Stash.open(place).scan(table) as rows:
        return [row["k"] for row in rows]


def test_a_scheduled_stash_leaves_out_tables_without_a_directory_of_their_own(
    instance: Instance, place: str, tmp_path: Path, clock: FakeClock
) -> None:
    add_table(instance, tmp_path, "t", 1)
    schedule_stash(instance, place, "1d")
    for key, name in enumerate(("x:y", "x~y", "_LATEST"), 2):
        add_table(instance, tmp_path, name, key)
    clock.now_ms = START_MS + DAY_MS
    report = make_due(instance)
    assert (keys(place, "t"), keys(place, "x:y")) == ([1], [2])
    assert sorted(Stash.open(place).tables()) == ["t", "x:y"]
    (record,) = StashRecords(instance.storage.root).all()
    status = get_status(instance, record)
    assert status.state == "complete"
    for reason in (
        "left out 'x~y': tables 'x:y' and 'x~y' would share the directory 'x~y'",
        "left out '_LATEST': table '_LATEST' would have the directory '_LATEST'",
    ):
        assert reason in (status.reason or "")
        assert reason in report.problems[0]
        assert reason in list_table_statuses(status).summary
    assert report.partial == (FIRST,)
    (listed,) = rows_of(list_statuses(instance, None))
    assert (listed["state"], listed["reason"]) == ("complete", status.reason)
    with pytest.raises(InvalidRequestError, match="rename"):
        schedule_stash(instance, place, "2d")


def test_a_table_keeps_its_directory_in_the_following_stashes(
    instance: Instance, place: str, tmp_path: Path, clock: FakeClock
) -> None:
    add_table(instance, tmp_path, "x~y", 1)
    schedule_stash(instance, place, "1d")
    clock.now_ms = START_MS + DAY_MS
    make_due(instance)
    # By name it would be first.
    add_table(instance, tmp_path, "x:y", 2)
    clock.now_ms = START_MS + 2 * DAY_MS
    make_due(instance)
    assert Stash.open(place).tables() == ["x~y"]
    assert keys(place, "x~y") == [1]


def test_a_scheduled_stash_leaves_out_a_table_that_was_deleted(
    instance: Instance, place: str, tmp_path: Path, clock: FakeClock
) -> None:
    for key, name in enumerate(("a", "b", "c")):
        add_table(instance, tmp_path, name, key)
    schedule_stash(instance, place, "1d", ("a", "b", "c"))
    delete_table(instance, "b")
    clock.now_ms = START_MS + DAY_MS
    start_due_stashes(instance)
    control_stashes(instance)
    delete_table(instance, "c")
    queue = instance.jobs.queue(QueueName.STASH)
    for message in queue.receive(10):
        run_stash_message(instance, message)
    assert control_stashes(instance).completed == (FIRST,)
    assert keys(place, "a") == [0]
    (record,) = StashRecords(instance.storage.root).all()
    assert get_status(instance, record).reason == "left out 'b': no table is named 'b'"


def test_old_stashes_are_deleted_also_if_none_can_start(
    instance: Instance, place: str, tmp_path: Path, clock: FakeClock
) -> None:
    add_table(instance, tmp_path, "t", 1)
    schedule_stash(instance, place, "1d", ("t",), keep="1d")
    for day in (1, 2):
        clock.now_ms = START_MS + day * DAY_MS
        make_due(instance)
    delete_table(instance, "t")
    clock.now_ms = START_MS + 4 * DAY_MS
    report = start_due_stashes(instance)
    assert report.pruned == [f"{place}/{FIRST}"]
    assert report.problems == [f"stash of {place}: no table is named 't'"]
    again = start_due_stashes(instance)
    assert (again.pruned, again.problems) == ([], report.problems)


def test_a_schedule_that_has_missed_its_time_is_late_in_all_listings(
    instance: Instance, place: str, tmp_path: Path, clock: FakeClock
) -> None:
    add_table(instance, tmp_path, "t", 1)
    schedule_stash(instance, place, "1d", ("t",))
    due_ms = START_MS + DAY_MS

    def states() -> list[Any]:
        (schedule,) = rows_of(list_schedules(instance))
        found = rows_of(list_statuses(instance, None))
        return [schedule["state"], *((row["stash"], row["state"]) for row in found)]

    clock.now_ms = due_ms + LATE_MS - 2 * 60_000
    assert states() == [None]
    clock.now_ms = due_ms + LATE_MS
    assert states() == ["missed", (FIRST, "missed")]
    assert list_statuses(instance, None).summary == "0 stashes, 0 not ended, 1 schedule late"
    assert list_schedules(instance).summary == "1 schedule, 1 late"
    (row,) = rows_of(list_statuses(instance, None))
    assert "expected `sleeper run`" in row["reason"]
    delete_table(instance, "t")
    start_due_stashes(instance)
    (row,) = rows_of(list_statuses(instance, None))
    assert (row["destination"], row["trigger"]) == (place, "schedule")
    assert row["reason"] == "no table is named 't'"
    add_table(instance, tmp_path, "t", 1)
    make_due(instance)
    assert states() == ["complete", (FIRST, "complete")]
