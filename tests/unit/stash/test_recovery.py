"""Stashes that are interrupted, recovered, cancelled, asked for twice, or made by workers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from sleeper.api import Table
from sleeper.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    StateMovedOnError,
    UnavailableError,
)
from sleeper.garbage_collection.service import collect_table, finish_deletions
from sleeper.jobs.queue import QueueName
from sleeper.runs.lock import lock_root
from sleeper.stash import Stash, run
from sleeper.stash.control import (
    ControlReport,
    check_recoverable,
    control_stashes,
    recover_stash,
)
from sleeper.stash.destination import StashDestination
from sleeper.stash.finish import cancel_stash
from sleeper.stash.message import run_stash_message
from sleeper.stash.record import StashRecord, StashRequest
from sleeper.stash.record_index import StashRecords
from sleeper.stash.run import make_stash
from sleeper.stash.start import is_dead, start_stash
from sleeper.stash.status import get_status
from sleeper.stash.task import TaskWriter
from sleeper.stash.versions import release_holds
from sleeper.storage.location import DataRoot
from tests.tables.opened import compact_fully
from tests.unit.stash.conftest import SCHEMA, Stasher
from tests.unit.stash.test_run import Killed, documents, ingest, rows

ANY_KEYS = range(12)


def start(stasher: Stasher, submitted: bool = False, **options: Any) -> StashRecord:
    request = StashRequest(stasher.destination, submitted=submitted, piece_bytes=500, **options)
    return start_stash(stasher.ports(), request)


def holds(stasher: Stasher, table: str = "a") -> int:
    return len(stasher.instance._ports.table(table).state.holds.all())


def keys(stasher: Stasher, name: str, table: str = "a") -> list[int]:
    return sorted(d["k"] for d in documents(Path(stasher.destination, name, table)))


def run_workers(stasher: Stasher, times: int = 1) -> int:
    """Does the tasks in the queue, each several times. Returns their number."""
    ports = stasher.ports()
    queue, count = ports.jobs.queue(QueueName.STASH), 0
    while messages := queue.receive():
        for message in messages:
            for _ in range(times):
                run_stash_message(ports, message)
            queue.delete(message.receipt)
            count += 1
    return count


@contextmanager
def killed_after(point: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], bool]]:
    """Kills the process at a number of writes, before and after a name exists."""
    left = point

    def pass_point() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed

    def watch(name: str) -> None:
        original = getattr(DataRoot, name)
        if name == "replacing":

            @contextmanager
            def replacing(self: DataRoot, path: str) -> Iterator[Any]:
                pass_point()
                with original(self, path) as sink:
                    yield sink
                    pass_point()
                pass_point()

            patch.setattr(DataRoot, name, replacing)
            return

        def call(self: DataRoot, *arguments: Any) -> Any:
            pass_point()
            result = original(self, *arguments)
            pass_point()
            return result

        patch.setattr(DataRoot, name, call)

    with monkeypatch.context() as patch:
        for name in ("replacing", "create", "delete"):
            watch(name)
        yield lambda: left <= 0


def test_a_stash_that_is_killed_anywhere_is_recovered_with_each_row_once(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = stasher.instance.create_table("a", SCHEMA, {"sleeper.table.gc.delay.minutes": "0"})
    ingest(table, rows(*ANY_KEYS))
    point, kills, expected = -1, 0, list(ANY_KEYS)
    is_killed = True
    while is_killed:
        point += 2
        record = start(stasher)
        with killed_after(point, monkeypatch) as was_killed:
            try:
                make_stash(stasher.ports(), record)
            except Killed:
                kills += 1
            is_killed = was_killed()
        if record.versions() is not None and point % 5 == 0:
            # The cut stays, whatever happens to the table.
            ingest(table, rows(1000 + point))
            compact_fully(stasher.instance._ports, "a")
            collect_table(stasher.instance._ports, "a")
        if is_killed and record.is_running():
            make_stash(stasher.ports(), record)
        success = Stash.open(stasher.destination)._destination.success(record.name)
        assert success is not None, f"killed at {point}"
        found = keys(stasher, record.name)
        assert found == expected, f"killed at {point}"
        assert stasher.instance._ports.table("a").state.holds.all() == []
        assert not record.is_running()
        expected = table_keys(table)
    assert kills > 15


def table_keys(table: Table) -> list[int]:
    return sorted(table.query(columns=["k"]).to_arrow()["k"].to_pylist())


def test_a_second_stash_of_a_destination_waits_for_the_first(stasher: Stasher) -> None:
    stasher.instance.create_table("a", SCHEMA).ingest(rows(1))
    first = start(stasher, submitted=True)
    with pytest.raises(ConflictError, match=f"stash {first.name} of .* is being made since"):
        start(stasher)
    cancel_stash(stasher.ports(), first)
    assert make_stash(stasher.ports(), start(stasher)).tables[0].rows == 1


def test_a_stash_of_a_due_time_starts_once(stasher: Stasher) -> None:
    stasher.instance.create_table("a", SCHEMA).ingest(rows(1))
    request = StashRequest(stasher.destination)
    record = start_stash(stasher.ports(), request, "2026-01-01-00-00-00")
    make_stash(stasher.ports(), record)
    with pytest.raises(ConflictError, match="already has the stash 2026-01-01-00-00-00"):
        start_stash(stasher.ports(), request, "2026-01-01-00-00-00")
    cancelled = start_stash(stasher.ports(), request, "2026-01-02-00-00-00")
    cancel_stash(stasher.ports(), cancelled)
    with pytest.raises(ConflictError, match="already has the stash 2026-01-02-00-00-00"):
        start_stash(stasher.ports(), request, "2026-01-02-00-00-00")


def test_a_stash_that_starts_right_after_another_is_refused(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stasher.instance.create_table("a", SCHEMA).ingest(rows(1))

    def start_both(*arguments: Any, **options: Any) -> StashRecord:
        first = start_stash(*arguments, **options)
        monkeypatch.undo()
        with pytest.raises(ConflictError, match=f"stash {first.name} of .* is being made since"):
            stasher.run()
        return first

    monkeypatch.setattr(run, "start_stash", start_both)
    assert stasher.run().tables[0].rows == 1
    assert "interrupted" not in caplog.text
    assert stasher.run().tables[0].rows == 1


def test_an_interrupted_stash_does_not_stop_the_next(
    stasher: Stasher, caplog: pytest.LogCaptureFixture
) -> None:
    stasher.instance.create_table("a", SCHEMA).ingest(rows(1))
    dead = start(stasher)
    assert is_dead(dead, stasher.ports().clock)
    assert get_status(stasher.ports(), dead).state == "interrupted"
    stasher.run()
    assert f"stash {dead.name} of {stasher.destination} was interrupted" in caplog.text


def test_a_cancelled_stash_leaves_no_files_and_no_holds(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch
) -> None:
    stasher.instance.create_table("a", SCHEMA).ingest(rows(*ANY_KEYS))
    record = start(stasher)
    write = TaskWriter.write

    def write_then_cancel(*arguments: Any) -> Any:
        result = write(*arguments)
        if record.decision() is None:
            cancel_stash(stasher.ports(), record)
        return result

    monkeypatch.setattr(TaskWriter, "write", write_then_cancel)
    with pytest.raises(ConflictError, match=f"stash {record.name} was cancelled"):
        make_stash(stasher.ports(), record)
    assert holds(stasher) == 0
    assert [p for p in Path(stasher.destination).rglob("*") if p.is_file()] == []
    assert get_status(stasher.ports(), record).state == "cancelled"
    for again in (make_stash, recover_stash):
        with pytest.raises((ConflictError, InvalidRequestError), match="was cancelled"):
            again(stasher.ports(), record)


def test_a_repeated_end_makes_the_name_of_success_durable(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(stasher.instance.create_table("a", SCHEMA), rows(1))
    record = start(stasher)
    with monkeypatch.context() as patch:
        patch.setattr(StashDestination, "record_latest", Mock(side_effect=Killed))
        with pytest.raises(Killed):
            make_stash(stasher.ports(), record)
    with monkeypatch.context() as patch:
        replacing = Mock(side_effect=DataRoot.replacing)
        patch.setattr(DataRoot, "replacing", lambda *arguments: replacing(*arguments))
        make_stash(stasher.ports(), record)
    written = [call.args[1] for call in replacing.call_args_list]
    assert any(path.endswith("_SUCCESS") for path in written)
    assert (stasher.root / "_SUCCESS").exists()


def test_a_complete_stash_cannot_be_cancelled(stasher: Stasher) -> None:
    stasher.instance.create_table("a", SCHEMA).ingest(rows(1))
    name = stasher.run().root
    record = StashRecords(stasher.instance._ports.storage.root).find(None, name)
    with pytest.raises(ConflictError, match="was completed already"):
        cancel_stash(stasher.ports(), record)
    with pytest.raises(InvalidRequestError, match="was completed"):
        check_recoverable(record)
    assert keys(stasher, name) == [1]


def test_a_stash_whose_cut_was_collected_fails(stasher: Stasher) -> None:
    """Its hold has expired, because no process kept it."""
    properties = {"sleeper.table.gc.delay.minutes": "0"}
    table = stasher.instance.create_table("a", SCHEMA, properties)
    ingest(table, rows(1))
    ingest(table, rows(2))
    record = start(stasher, submitted=True)
    control_stashes(stasher.ports())
    ports = stasher.ports()
    release_holds(ports, record.versions() or ())
    compact_fully(ports, "a")
    collect_table(ports, "a")
    with pytest.raises(StateMovedOnError, match="of table 'a' was collected"):
        recover_stash(ports, record)
    status = get_status(ports, record)
    assert status.state == "failed"
    assert "was collected" in str(status.reason)


def test_workers_make_a_stash(stasher: Stasher) -> None:
    table = stasher.instance.create_table("a", SCHEMA)
    table.ingest(rows(*ANY_KEYS))
    stasher.instance.create_table("b", SCHEMA)
    record = start(stasher, submitted=True)
    assert get_status(stasher.ports(), record).state == "waiting"
    assert control_stashes(stasher.ports()).planned == (record.name,)
    table.ingest(rows(100))
    assert control_stashes(stasher.ports()).ended == ()
    assert holds(stasher) == 1
    # Every message is delivered twice, and planned twice.
    assert run_workers(stasher, times=2) == get_status(stasher.ports(), record).tasks > 1
    assert control_stashes(stasher.ports()).ended == (record.name,)
    assert keys(stasher, record.name) == list(ANY_KEYS)
    assert (holds(stasher), record.is_running()) == (0, False)
    assert control_stashes(stasher.ports()).ended == ()
    assert Stash.open(stasher.destination).tables() == ["a", "b"]


def test_a_planner_that_dies_is_continued(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch
) -> None:
    stasher.instance.create_table("a", SCHEMA).ingest(rows(*ANY_KEYS))
    for point in range(1, 16):
        record = start(stasher, submitted=True)
        with killed_after(point, monkeypatch):
            try:
                control_stashes(stasher.ports())
            except Killed:
                run_workers(stasher)
        while record.is_running():
            control_stashes(stasher.ports())
            run_workers(stasher)
        assert keys(stasher, record.name) == list(ANY_KEYS)
        assert holds(stasher) == 0


def test_a_second_planner_leaves_the_stash_to_the_first(stasher: Stasher) -> None:
    stasher.instance.create_table("a", SCHEMA).ingest(rows(*ANY_KEYS))
    record = start(stasher, submitted=True)
    ports = stasher.ports()
    with lock_root(record.own, record.lock_path, "the first", ports.clock):
        assert control_stashes(ports) == ControlReport()
    assert ports.jobs.queue(QueueName.STASH).counts().visible == 0
    assert control_stashes(ports).planned == (record.name,)
    assert control_stashes(ports).planned == ()


def test_lost_tasks_are_sent_again(stasher: Stasher, monkeypatch: pytest.MonkeyPatch) -> None:
    stasher.instance.create_table("a", SCHEMA).ingest(rows(*ANY_KEYS))
    record = start(stasher, submitted=True)
    control_stashes(stasher.ports())
    ports = stasher.ports()
    queue = ports.jobs.queue(QueueName.STASH)
    (message,) = queue.receive()

    def refuse(*_: object) -> None:
        raise UnavailableError("the bucket refuses")

    with monkeypatch.context() as patch:
        patch.setattr("sleeper.stash.task.PieceWriter.write", refuse)
        with pytest.raises(UnavailableError):
            run_stash_message(ports, message)
    queue.delete(message.receipt)
    run_workers(stasher)
    status = get_status(ports, record)
    assert (status.state, status.tasks - status.tasks_done) == ("running", 1)
    assert status.reason == "table 'a': the bucket refuses"
    assert recover_stash(ports, record) == 1
    run_workers(stasher)
    control_stashes(ports)
    assert keys(stasher, record.name) == list(ANY_KEYS)


def test_workers_complete_a_stash_whose_process_died(stasher: Stasher) -> None:
    stasher.instance.create_table("a", SCHEMA).ingest(rows(*ANY_KEYS))
    record = start(stasher)
    assert get_status(stasher.ports(), record).state == "interrupted"
    assert control_stashes(stasher.ports()) == ControlReport()
    assert recover_stash(stasher.ports(), record) > 0
    assert get_status(stasher.ports(), record).state == "running"
    run_workers(stasher)
    assert control_stashes(stasher.ports()).completed == (record.name,)
    assert keys(stasher, record.name) == list(ANY_KEYS)


def test_an_error_that_cannot_be_recorded_is_raised(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instance's disk is full, and the destination refuses."""
    stasher.instance.create_table("a", SCHEMA).ingest(rows(*ANY_KEYS))
    record = start(stasher)

    def refuse(*_: object) -> None:
        raise UnavailableError("the bucket refuses")

    def full(*_: object) -> None:
        raise UnavailableError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("sleeper.stash.task.PieceWriter.write", refuse)
        patch.setattr(StashRecord, "record_problem", full)
        with pytest.raises(UnavailableError, match="the bucket refuses"):
            make_stash(stasher.ports(), record)
    make_stash(stasher.ports(), record)
    assert keys(stasher, record.name) == list(ANY_KEYS)


def test_a_stash_that_hangs_fails(stasher: Stasher) -> None:
    stasher.instance.create_table("a", SCHEMA).ingest(rows(1))
    record = start(stasher, submitted=True)
    control_stashes(stasher.ports())
    stasher.pass_time(minutes=24 * 60 + 1)
    assert control_stashes(stasher.ports()).ended == (record.name,)
    assert get_status(stasher.ports(), record).reason == "it was not complete after 24 h"
    assert run_workers(stasher) == 1
    assert not Path(stasher.destination, record.name, "a").exists()


def test_a_deleted_table_that_was_asked_for_fails_the_stash(stasher: Stasher) -> None:
    stasher.instance.create_table("a", SCHEMA).ingest(rows(1))
    record = start(stasher, submitted=True, tables=("a",))
    control_stashes(stasher.ports())
    stasher.instance.delete_table("a", now=True)
    finish_deletions(stasher.ports())
    assert run_workers(stasher) == 1
    # A task decides, and the control function does what follows.
    assert record.is_running()
    assert control_stashes(stasher.ports()).failed == (record.name,)
    status = get_status(stasher.ports(), record)
    assert (status.state, record.is_running()) == ("failed", False)
    assert status.reason == f"table 'a' was deleted while stash {record.name} was made"


def test_an_unknown_stash_is_an_error(stasher: Stasher) -> None:
    records = StashRecords(stasher.instance._ports.storage.root)
    with pytest.raises(NotFoundError, match="has no stash 2026-01-01-00-00-00"):
        records.find(None, "2026-01-01-00-00-00")
    with pytest.raises(NotFoundError, match="has no stash that has not ended"):
        records.find(None, None)


@pytest.mark.parametrize("submits", [True, False])
def test_an_interrupted_recovery_of_a_submitted_stash_leaves_no_task_unsent(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch, submits: bool
) -> None:
    """Its tables are planned then, so the control function sends none of their tasks."""
    stasher.instance.create_table("t", SCHEMA).ingest(rows(*ANY_KEYS))
    record = start(stasher, submitted=True)

    def fail(*_arguments: Any) -> None:
        raise UnavailableError("away")

    recover = recover_stash if submits else make_stash
    with monkeypatch.context() as patch:
        patch.setattr("sleeper.stash.control.renew_holds", fail)
        patch.setattr("sleeper.stash.run.renew_holds", fail)
        with pytest.raises(UnavailableError, match="away"):
            recover(stasher.ports(), record)
    control_stashes(stasher.ports())
    assert run_workers(stasher) > 0
    assert control_stashes(stasher.ports()).completed == (record.name,)
