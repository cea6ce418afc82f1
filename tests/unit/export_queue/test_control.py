"""Reports on queues, and their control."""

from pathlib import Path
from typing import Any

import pytest

import sleeper
from sleeper.admin.code import remove_wheel
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.export_queue.capture import capture_exports
from sleeper.export_queue.control import (
    pause_queue,
    peek,
    queue_status,
    redrive,
    resume_queue,
    split_points,
)
from sleeper.export_queue.definition import ExporterSettings
from sleeper.export_queue.listings import QueueState, describe_status, gather_export_queues
from sleeper.export_queue.progress import ExportWatch
from sleeper.export_queue.queue_worker import drain_now
from sleeper.export_queue.store import NewDeadLetter, NewItem, Position, open_export_store
from sleeper.instance import Instance
from sleeper.reports.output import ReportKind
from sleeper.reports.service import report
from tests.unit.export_queue.receiver import create_queue, define_queue
from tests.unit.export_queue.stored_queue import make_table_of_words, rows_of
from tests.wheels import make_wheel


@pytest.fixture
def table(instance: Instance) -> sleeper.Table:
    return make_table_of_words(instance)


def create(instance: Instance, table: sleeper.Table, **more: Any) -> None:
    create_queue(instance, table.name, define_queue(table, "word", "count", **more))


def test_the_status_of_a_queue_counts_what_it_has(instance: Instance, table: sleeper.Table) -> None:
    create(instance, table)
    table.ingest(rows_of(a=1, b=2))
    status = queue_status(instance, "q")
    assert (status.table, status.on, status.exporter) == ("words", "ingest", "null:")
    assert (status.state, status.buckets) == (QueueState.ACTIVE, 119)
    assert (status.lag, status.pending, status.oldest_ms) == (1, 0, None)
    before_ms = instance.clock()
    capture_exports(instance, "q")
    status = queue_status(instance, "q")
    assert (status.lag, status.pending, status.dead, status.failing) == (0, 2, 0, ())
    assert status.pending_bytes > 0
    assert status.oldest_ms is not None
    assert before_ms <= status.oldest_ms <= instance.clock()


def test_the_lag_has_existing_rows_and_no_upkeep(instance: Instance, table: sleeper.Table) -> None:
    for rows in (rows_of(a=1), rows_of(b=2)):
        table.ingest(rows)
    create(instance, table, existing_rows=True)
    assert (queue_status(instance, "q").lag, queue_status(instance, "q").pending) == (1, 0)
    (listing,) = report(instance, ReportKind.TABLES)
    names = [column.name for column in listing.columns]
    assert [row[names.index("export_lag")] for row in listing.rows] == [1]
    assert drain_now(instance, "q").exports == 2
    watch = ExportWatch(instance)
    assert not watch.look().is_busy
    table.compact(full=True)
    with table._instance.table("words").state.reading() as state:
        newest = state.number
    (listed,) = gather_export_queues(instance)
    assert (listed.lag, listed.uncaptured_ms) == (0, None)
    # The position passes the upkeep, so that the log can be trimmed.
    assert open_export_store(instance).find("q").position < Position(newest)
    assert watch.look().is_busy
    capture_exports(instance, "q")
    assert not watch.look().is_busy
    assert open_export_store(instance).find("q").position == Position(newest)


def test_the_status_says_that_nothing_is_captured_because_too_much_is_pending(
    instance: Instance, table: sleeper.Table
) -> None:
    create(instance, table, buckets=1)
    instance.change_properties({"sleeper.export.queue.pending.bytes.max": "1M"})
    generation = open_export_store(instance).find("q").generation
    assert not queue_status(instance, "q").is_full
    item = NewItem(0, "1", 1, bytes(1024**2 + 1))
    open_export_store(instance).add("q", generation, [item], Position(generation))
    status = queue_status(instance, "q")
    assert status.is_full
    assert "  full      nothing is taken up: " in "".join(describe_status(status).drawing)


def test_a_failing_bucket_is_in_the_status_until_it_is_resumed(
    instance: Instance, table: sleeper.Table
) -> None:
    create(instance, table, buckets=1)
    table.ingest(rows_of(a=1, b=2))
    capture_exports(instance, "q")
    store = open_export_store(instance)
    store.claim("q", 0, "me", 10)
    due_ms = instance.clock() + 10**6
    store.record_failure("q", 0, "me", "the error", True, due_ms)
    status = queue_status(instance, "q")
    assert status.state is QueueState.FAILING
    (failing,) = status.failing
    assert (failing.bucket, failing.exports, failing.failures, failing.refusals) == (0, 2, 1, 1)
    assert (failing.is_unavailable, failing.error, failing.due_ms) == (False, "the error", due_ms)
    pause_queue(instance, "q")
    assert queue_status(instance, "q").state is QueueState.PAUSED
    assert resume_queue(instance, "q") == 1
    (failing,) = queue_status(instance, "q").failing
    assert failing.due_ms == 0


def test_the_status_says_that_workers_die_with_a_bucket(
    instance: Instance, table: sleeper.Table
) -> None:
    create(instance, table, buckets=1)
    table.ingest(rows_of(a=1))
    capture_exports(instance, "q")
    for owner in ("one", "two", "three"):
        assert open_export_store(instance).claim("q", 0, owner, seconds=0)
    status = queue_status(instance, "q")
    assert status.state is QueueState.FAILING
    assert [each.state for each in gather_export_queues(instance)] == [QueueState.FAILING]
    assert (status.failing[0].deaths, status.failing[0].is_unavailable) == (2, False)
    assert "2 workers died while exporting it" in "".join(describe_status(status).drawing)


def test_peek_shows_pending_exports_without_changing_them(
    instance: Instance, table: sleeper.Table
) -> None:
    create(instance, table, buckets=2)
    table.ingest(rows_of(a=1, b=2, c=3, d=4, e=5))
    capture_exports(instance, "q")
    peeked = peek(instance, "q")
    assert [each.bucket for each in peeked] == [0, 1]
    words = [word for each in peeked for word in each.rows.column("word").to_pylist()]
    assert sorted(words) == ["a", "b", "c", "d", "e"]
    assert sum(each.rows.num_rows for each in peek(instance, "q", limit=4)) == 4
    assert [each.bucket for each in peek(instance, "q", bucket=1)] == [1]
    assert queue_status(instance, "q").pending == 5
    with pytest.raises(InvalidRequestError, match=r"no bucket 2 \(expected 0 to 1\)"):
        peek(instance, "q", bucket=2)


def test_peek_shows_dead_letters_which_redrive_brings_back(
    instance: Instance, table: sleeper.Table
) -> None:
    create(instance, table, buckets=1)
    table.ingest(rows_of(a=1, b=2))
    capture_exports(instance, "q")
    store = open_export_store(instance)
    (item,) = store.read("q", 0, 10**6)
    store.claim("q", 0, "me", 10)
    letter = NewDeadLetter(item.id, item.exports, item.content, "refused")
    damaged = NewDeadLetter("damaged", 1, b"damaged", "damaged")
    store.settle("q", 0, "me", [item.id], [damaged, letter])
    assert (queue_status(instance, "q").pending, queue_status(instance, "q").dead) == (0, 3)
    assert peek(instance, "q") == []
    (dead,) = peek(instance, "q", dead=True)
    assert (dead.bucket, dead.error) == (0, "refused")
    assert dead.rows.column("count").to_pylist() == [1, 2]
    assert dead.died_ms is not None
    assert redrive(instance, "q") == 3
    assert queue_status(instance, "q").pending == 3


def test_split_points_are_hexadecimal_buckets_of_equal_width() -> None:
    assert split_points("ici", 1009, 300) == ("ici:12c", "ici:258", "ici:384")
    assert split_points("q", 119, 40) == ("q:28", "q:50")
    assert split_points("q", 4, 10) == ()
    points = split_points("q", 1009, 7)
    assert list(points) == sorted(points)
    with pytest.raises(InvalidRequestError, match="expected at least 1"):
        split_points("q", 4, 0)


def test_every_function_names_an_unknown_queue(instance: Instance, table: sleeper.Table) -> None:
    create(instance, table)
    for function in (queue_status, peek, pause_queue, resume_queue, redrive):
        with pytest.raises(NotFoundError, match="export queue 'p' does not exist"):
            function(instance, "p")


def test_a_wheel_whose_exporter_is_used_is_not_removed(
    instance: Instance, table: sleeper.Table, tmp_path: Path
) -> None:
    wheel = make_wheel(
        tmp_path, modules={"my_code": "class Mine: pass"}, exporters={"Mine": "my_code:Mine"}
    )
    instance.code.registry.add([wheel])
    create(instance, table, exporter=ExporterSettings("python:Mine"))
    with pytest.raises(
        InvalidRequestError, match=r"exporter 'Mine' of .* is in use by export queue q: change its"
    ):
        remove_wheel(instance, "my_code")
