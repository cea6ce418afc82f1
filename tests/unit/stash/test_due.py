"""Schedules of stashes: due stashes start once, wait, are requested, and old ones are deleted."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.admin.tables import create_table, delete_table
from sleeper.errors import InvalidRequestError, NotFoundError, UnavailableError
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.schedule import Schedule
from sleeper.stash import Stash, due
from sleeper.stash.control import control_stashes
from sleeper.stash.destination import open_to_read
from sleeper.stash.due import StartReport, start_due_stashes
from sleeper.stash.finish import fail_stash
from sleeper.stash.layout import root_name
from sleeper.stash.record import StashRecord, StashRequest, Trigger
from sleeper.stash.record_index import StashRecords
from sleeper.stash.requests import (
    pending_requests,
    remove_schedule,
    request_stash,
    withdraw_request,
)
from sleeper.stash.schedules import DAILY, ScheduleStore, StashSchedule, schedule_stash
from sleeper.stash.start import start_stash
from sleeper.storage.location import DataRoot
from tests.clock import DAY_MS, START_MS, FakeClock
from tests.ports import with_ports

SCHEMA = '{"rowKeyFields": [{"name": "k", "type": "LongType"}]}'
FIRST, SECOND, THIRD = (root_name(START_MS + day * DAY_MS) for day in (1, 2, 3))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def instance(tmp_path: Path, clock: FakeClock) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance", "test")
    with closing(open_local_instance(tmp_path / "instance", clock)) as opened:
        create_table(opened, "t", SCHEMA)
        yield opened


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "stash")


def records(instance: Instance) -> list[StashRecord]:
    """Returns the instance's stashes, oldest first."""
    return StashRecords(instance.storage.root).all()[::-1]


def names(instance: Instance) -> list[str]:
    return [each.name for each in records(instance)]


def end(instance: Instance) -> str:
    """Makes the stash that was started, as workers do. Returns its name."""
    (running,) = StashRecords(instance.storage.root).running()
    while running.is_running():
        assert control_stashes(instance).problems == ()
    return running.name


def requesters(instance: Instance, schedule: StashSchedule) -> list[str]:
    return [each.by for each in pending_requests(instance.storage.root, schedule.digest)]


def test_a_due_stash_starts_once_under_the_name_of_its_time(
    instance: Instance, place: str, clock: FakeClock
) -> None:
    schedule_stash(instance, place, "1d", ("t",), atomic=True)
    clock.pass_minutes(24 * 60 - 1)
    assert start_due_stashes(instance) == StartReport()
    clock.pass_minutes(2)
    assert start_due_stashes(instance) == StartReport(started=[f"{place}/{FIRST}"])
    assert start_due_stashes(instance) == StartReport()
    (record,) = records(instance)
    assert record.name == FIRST
    request = record.request
    assert (request.destination, request.tables, request.atomic) == (place, ("t",), True)
    assert (request.trigger, request.submitted) == (Trigger.SCHEDULE, True)
    assert end(instance) == FIRST
    assert Path(place, "_LATEST").read_text() == FIRST


def test_a_due_stash_leaves_out_excluded_tables(
    instance: Instance, place: str, clock: FakeClock
) -> None:
    for name in ("tmp_1", "old"):
        create_table(instance, name, SCHEMA)
    schedule_stash(instance, place, "1d", exclude=("tmp_*", "old", "tmp_*"))
    # The tables of the due time count: one is gone by then, and one is new.
    delete_table(instance, "old")
    create_table(instance, "tmp_2", SCHEMA)
    clock.now_ms = START_MS + DAY_MS
    assert start_due_stashes(instance) == StartReport(started=[f"{place}/{FIRST}"])
    assert records(instance)[0].request.exclude == ("tmp_*", "old")
    assert end(instance) == FIRST
    assert [each.table for each in open_to_read(place).tables(FIRST)] == ["t"]


def test_a_due_stash_waits_for_the_end_of_another_and_only_the_latest_is_made(
    instance: Instance, place: str, clock: FakeClock
) -> None:
    schedule_stash(instance, place, "1d")
    start_stash(instance, StashRequest(place, submitted=True))
    clock.now_ms = START_MS + DAY_MS
    assert start_due_stashes(instance) == StartReport(waiting=[place])
    clock.now_ms = START_MS + 2 * DAY_MS
    assert start_due_stashes(instance) == StartReport(waiting=[place])
    fail_stash(instance, records(instance)[0], "no")
    assert start_due_stashes(instance).started == [f"{place}/{SECOND}"]
    assert start_due_stashes(instance) == StartReport()
    assert names(instance) == [root_name(START_MS), SECOND]


def test_a_stash_that_starts_late_has_its_time_to_complete(
    instance: Instance, place: str, clock: FakeClock
) -> None:
    schedule_stash(instance, place, "5d")
    clock.now_ms = START_MS + 9 * DAY_MS
    start_due_stashes(instance)
    assert end(instance) == root_name(START_MS + 5 * DAY_MS)
    assert Path(place, "_LATEST").exists()


def test_two_processes_start_one_stash(
    instance: Instance, place: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule_stash(instance, place, "1d")
    clock.now_ms = START_MS + DAY_MS
    original = start_stash
    others: list[StartReport] = []

    def start_later(*arguments: Any) -> StashRecord:
        if not others:
            others.append(StartReport())
            others.append(start_due_stashes(instance))
        return original(*arguments)

    monkeypatch.setattr(due, "start_stash", start_later)
    assert start_due_stashes(instance).problems == []
    assert others[1].started == [f"{place}/{FIRST}"]
    assert names(instance) == [FIRST]
    assert start_due_stashes(instance) == StartReport()


def test_a_clock_that_is_set_back_starts_no_second_stash_and_stops_no_schedule(
    instance: Instance, place: str, clock: FakeClock
) -> None:
    schedule_stash(instance, place, "1d")
    clock.now_ms = START_MS + 2 * DAY_MS
    start_due_stashes(instance)
    end(instance)
    for back_ms in (3_600_000, DAY_MS - 1):
        clock.now_ms = START_MS + 2 * DAY_MS - back_ms
        assert start_due_stashes(instance) == StartReport()
    clock.now_ms = START_MS + 2 * DAY_MS
    assert start_due_stashes(instance) == StartReport()
    # A wrong clock was a month ahead.
    clock.now_ms = START_MS + 30 * DAY_MS
    start_due_stashes(instance)
    end(instance)
    clock.now_ms = START_MS + 3 * DAY_MS
    assert start_due_stashes(instance).started == [f"{place}/{THIRD}"]
    assert len(records(instance)) == 3


def test_an_error_of_one_schedule_does_not_stop_the_others(
    instance: Instance, place: str, clock: FakeClock, tmp_path: Path
) -> None:
    create_table(instance, "gone", SCHEMA)
    schedule_stash(instance, place, "1d", ("gone",))
    delete_table(instance, "gone")
    others = [schedule_stash(instance, str(tmp_path / f"place{n}"), "1d") for n in range(3)]
    damaged = Path(instance.storage.root.url_of(f"stashes/schedules/{others[0].digest}.json"))
    damaged.write_text("{")
    clock.now_ms = START_MS + DAY_MS
    report = start_due_stashes(instance)
    assert sorted(report.started) == [f"{each.destination}/{FIRST}" for each in others[1:]]
    lost, unread = sorted(report.problems, key=lambda text: text.startswith("schedule"))
    assert lost.startswith(f"stash of {place}: no table is named 'gone'")
    assert f"schedule {others[0].digest}: " in unread


def test_a_name_that_another_instance_took_is_left_out(
    instance: Instance, place: str, clock: FakeClock
) -> None:
    schedule_stash(instance, place, "1d")
    Path(place, FIRST).mkdir(parents=True)
    clock.now_ms = START_MS + DAY_MS
    (problem,) = start_due_stashes(instance).problems
    assert f"stash {FIRST} of {place}: another instance" in problem
    assert start_due_stashes(instance) == StartReport()
    clock.now_ms = START_MS + 2 * DAY_MS
    assert start_due_stashes(instance).started == [f"{place}/{SECOND}"]


def test_a_stash_that_nobody_requested_is_left_out(
    instance: Instance, place: str, clock: FakeClock
) -> None:
    schedule = schedule_stash(instance, place, "1d", only_if_requested=True)
    clock.now_ms = START_MS + DAY_MS
    assert start_due_stashes(instance) == StartReport(unrequested=[place])
    assert start_due_stashes(instance) == StartReport()
    # This is for the next due time.
    first, is_new = request_stash(instance, place, "alice")
    assert (first.by, is_new) == ("alice", True)
    assert request_stash(instance, place, "alice") == (first, False)
    request_stash(instance, place, "bob")
    assert start_due_stashes(instance) == StartReport()
    clock.now_ms = START_MS + 2 * DAY_MS
    assert start_due_stashes(instance).started == [f"{place}/{SECOND}"]
    assert first.id in records(instance)[0].request.requests
    assert requesters(instance, schedule) == []
    end(instance)
    clock.now_ms = START_MS + 3 * DAY_MS
    assert start_due_stashes(instance) == StartReport(unrequested=[place])


def test_a_withdrawn_request_starts_nothing(
    instance: Instance, place: str, clock: FakeClock
) -> None:
    schedule = schedule_stash(instance, place, "1d", only_if_requested=True)
    request_stash(instance, place, "alice")
    request_stash(instance, place, "bob")
    assert not withdraw_request(instance, place, "carol")
    assert withdraw_request(instance, place, "alice")
    assert not withdraw_request(instance, place, "alice")
    assert requesters(instance, schedule) == ["bob"]
    withdraw_request(instance, place, "bob")
    clock.now_ms = START_MS + DAY_MS
    assert start_due_stashes(instance) == StartReport(unrequested=[place])


class Killed(BaseException):
    """The process was killed here."""


def test_a_killed_start_fulfils_each_request_once(
    instance: Instance, place: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each write, with a request that is made just after."""
    schedule = schedule_stash(instance, place, "1d", only_if_requested=True)
    left = 0

    def watch(name: str) -> None:
        original: Callable[..., Any] = getattr(DataRoot, name)

        def watched(self: DataRoot, *arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed
            return original(self, *arguments)

        monkeypatch.setattr(DataRoot, name, watched)

    for name in ("put", "create", "delete"):
        watch(name)
    day, kills, is_killed = 0, 0, True
    request_stash(instance, place, "always")
    while is_killed:
        day += 1
        is_killed = False
        clock.now_ms = START_MS + day * DAY_MS
        before = requesters(instance, schedule)
        left = kills + 1
        try:
            start_due_stashes(instance)
        except Killed:
            is_killed = True
            kills += 1
        left = 0
        request_stash(instance, place, f"after {kills}")
        started = StashRecords(instance.storage.root).running()
        # The next day's request counts for the next day's stash, and no request counts twice.
        if started:
            start_due_stashes(instance)
            assert [each.name for each in started] == [end(instance)]
            assert requesters(instance, schedule) == [f"after {kills}"]
        else:
            assert requesters(instance, schedule) == [*before, f"after {kills}"]
    fulfilled = [each for record in records(instance) for each in record.request.requests]
    assert len(fulfilled) == len(set(fulfilled)) == kills + 1
    assert kills > 4


def test_a_request_that_a_dead_process_did_not_delete_counts_once(
    instance: Instance, place: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = schedule_stash(instance, place, "1d", only_if_requested=True)
    first, _ = request_stash(instance, place, "alice")
    clock.now_ms = START_MS + DAY_MS

    def fail(*_: object) -> None:
        raise UnavailableError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(due, "delete_requests", fail)
        assert start_due_stashes(instance).problems == [f"stash of {place}: the disk is full"]
    end(instance)
    assert requesters(instance, schedule) == []
    again, is_new = request_stash(instance, place, "alice")
    assert is_new
    assert requesters(instance, schedule) == ["alice"]
    clock.now_ms = START_MS + 2 * DAY_MS
    start_due_stashes(instance)
    assert [r.request.requests for r in records(instance)] == [(first.id,), (again.id,)]
    assert list(instance.storage.root.list_objects("stashes/requests")) == []


def test_old_stashes_are_deleted_after_each_scheduled_one(
    instance: Instance, place: str, clock: FakeClock
) -> None:
    schedule_stash(instance, place, "1d", keep="1d")
    deleted = []
    for day in range(1, 5):
        clock.now_ms = START_MS + day * DAY_MS
        # The stash of this time runs.
        assert start_due_stashes(instance).pruned == []
        end(instance)
        deleted.append(start_due_stashes(instance).pruned)
        assert start_due_stashes(instance) == StartReport()
        clock.pass_minutes(60 * day)
    assert deleted == [[], [], [], [f"{place}/{FIRST}"]]
    assert names(instance)[0] == SECOND


def test_a_damaged_stash_is_reported_once_after_each_scheduled_one(
    instance: Instance, place: str, clock: FakeClock
) -> None:
    schedule_stash(instance, place, "1d", keep="1d")
    clock.now_ms = START_MS + DAY_MS
    start_due_stashes(instance)
    end(instance)
    Path(place, FIRST, "_SUCCESS").write_text("")
    (problem,) = start_due_stashes(instance).problems
    assert f"stash {FIRST} of {place} is kept" in problem
    assert start_due_stashes(instance) == StartReport()


def test_a_schedule_is_replaced_and_removed(
    instance: Instance, place: str, clock: FakeClock
) -> None:
    first = schedule_stash(instance, place, only_if_requested=True, keep="7d")
    assert first.schedule == Schedule(DAILY, START_MS)
    clock.pass_minutes(1)
    # The same times begin no new period, so that a command may be repeated.
    again = schedule_stash(instance, f"file://{place}/", DAILY, ("t", "t"))
    assert again == StashSchedule(place, first.schedule, ("t",))
    assert schedule_stash(instance, place, "1h").schedule == Schedule("1h", START_MS + 60_000)
    store = ScheduleStore(instance.storage.root)
    assert [each.destination for each in store.list()] == [place]
    request_stash(instance, place, "alice")
    clock.now_ms = START_MS + DAY_MS
    start_due_stashes(instance)
    request_stash(instance, place, "bob")
    remove_schedule(instance, place)
    assert list(store.list()) == []
    left = [each.path for each in instance.storage.root.list_objects("stashes/requests")]
    assert [*left, *instance.storage.root.list_objects("stashes/schedules")] == []
    for change in (remove_schedule, lambda i, d: request_stash(i, d, "alice")):
        with pytest.raises(NotFoundError, match=f"destination {place} has no schedule"):
            change(instance, place)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"expression": "often"}, "schedule 'often' is invalid"),
        ({"keep": "7"}, "age '7' is invalid"),
        ({"destination": "instance/x"}, "is inside the instance"),
        ({"destination": "gs://bucket/x"}, "gs://bucket/x"),
        ({"tables": ("gone",)}, "no table is named 'gone'"),
        ({"exclude": ("gone",)}, "no table is named 'gone'"),
        ({"exclude": ("t*",)}, "all tables are excluded by 't*'"),
    ],
)
def test_a_wrong_schedule_is_refused(
    instance: Instance, tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    settings: dict[str, Any] = {"destination": "stash", "expression": "1d", **change}
    if "//" not in settings["destination"]:
        settings["destination"] = str(tmp_path / settings["destination"])
    with pytest.raises((InvalidRequestError, NotFoundError)) as refused:
        schedule_stash(instance, **settings)
    assert reason in str(refused.value)
    assert list(ScheduleStore(instance.storage.root).list()) == []


def test_an_instance_without_workers_for_stashes_schedules_none(
    instance: Instance, place: str
) -> None:
    deployed = with_ports(instance, jobs={"queues": (QueueName.INGEST,)})
    with pytest.raises(InvalidRequestError, match="expected the part StashStack"):
        schedule_stash(deployed, place)


@pytest.mark.parametrize("by", ["", " ", "a\nb", "x" * 101])
def test_a_wrong_name_of_a_requester_is_refused(instance: Instance, place: str, by: str) -> None:
    schedule_stash(instance, place)
    with pytest.raises(InvalidRequestError, match="of a requester is invalid"):
        request_stash(instance, place, by)


def test_stashes_start_without_arrow(
    instance: Instance, place: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule_stash(instance, place, "1d", keep="7d")
    request_stash(instance, place, "alice")
    clock.now_ms = START_MS + DAY_MS
    # The function that starts them has no Arrow.
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert start_due_stashes(instance).problems == []
    assert names(instance) == [FIRST]


@pytest.mark.slow
def test_a_local_instance_makes_what_is_due_and_ends(tmp_path: Path) -> None:
    settings = {"sleeper.engine.threads": "1"}
    with sleeper.create_instance(tmp_path / "instance", settings) as instance:
        instance.create_table("t", json.loads(SCHEMA)).ingest(pa.table({"k": [1]}))
        instance.schedule_stash(tmp_path / "stash", "1d", ["t"], only_if_requested=True, keep="0d")
        assert instance.request_stash(tmp_path / "stash", "alice")
        assert not instance.request_stash(tmp_path / "stash", "alice")
        earlier = instance.stash(tmp_path / "stash").root
        store = ScheduleStore(instance._ports.storage.root)
        schedule = store.find(str(tmp_path / "stash"))
        since = Schedule("1d", schedule.schedule.since_ms - 25 * 3_600_000)
        store.put(replace(schedule, schedule=since))
        assert instance.run_until_idle(workers=1).idle
        name = root_name(since.since_ms + DAY_MS)
        with Stash.open(str(tmp_path / "stash")).scan("t") as rows:
            assert [document["k"] for document in rows] == [1]
        assert (tmp_path / "stash" / "_LATEST").read_text() == name
        assert not (tmp_path / "stash" / earlier).exists()
        assert start_due_stashes(instance._ports) == StartReport()
        assert names(instance._ports) == [name]
        assert instance.prune_stashes(tmp_path / "stash", "0d") == []
        instance.schedule_stash(tmp_path / "stash", None)
        assert list(store.list()) == []
