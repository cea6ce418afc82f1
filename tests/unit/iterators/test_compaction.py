"""Iterators in compactions: state of the job, its files and their rows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sleeper.compaction.job import CompactionJob
from sleeper.compaction.run import CompactionResult, CompactionSettings, run_compaction
from sleeper.datafiles.merge.steps import TableIterators
from sleeper.errors import StateMovedOnError, UserCodeError
from sleeper.jobs.status import JobState
from sleeper.processing.model import IteratorCall, Processing
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.statestore.transactions.table_definition import ChangeProcessing
from tests.tables.data_table import DataTable
from tests.tables.watched_ports import TABLE_ID
from tests.unit.iterators import failing
from tests.unit.iterators.failing import make_iterators
from tests.unit.processing.test_any_history import arrow_table

P = PrimitiveType
SCHEMA = Schema((Field("key", P.INT),), (), (Field("n", P.LONG),))
MINUTE_MS = 60_000


@pytest.fixture
def table(tmp_path: Path) -> Iterator[DataTable]:
    mine = Processing(iterator=IteratorCall("Mine"))
    data_table = DataTable(tmp_path, SCHEMA, [500], processing=mine)
    for first in (0, 5):
        rows = [(k, k) for k in range(first, first + 20_000)]
        data_table.ingest_sorted(arrow_table(SCHEMA, rows))
    yield data_table
    data_table.close()


def create(table: DataTable) -> CompactionJob:
    table.messages.clear()
    table.create_jobs(full=True)
    return table.sent_jobs()[-1]


def run(table: DataTable, job: CompactionJob, iterators: TableIterators) -> CompactionResult:
    settings = CompactionSettings(table.engine, task_id="task", iterators=iterators)
    return run_compaction(job, table.store, table.root, table.tracker, settings, table.clock)


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (failing.raises, r"at key \(\d+,?\): KeyError"),
        (failing.reverses, "expected rows in key order"),
        (failing.drops_a_column, r"columns key \(expected key, n\)"),
        (failing.ends_early, "it ended before the rows did"),
        (failing.reads_nothing, "it ended before the rows did"),
    ],
)
def test_a_failure_is_recorded_and_the_files_are_released_in_five_minutes(
    table: DataTable, act: Any, reason: str
) -> None:
    previous, files = table.rows(), table.files()
    job = create(table)
    with pytest.raises(UserCodeError, match=f"iterator 'Mine' on table 't'.*{reason}"):
        run(table, job, make_iterators(act))
    status = table.tracker.job(TABLE_ID, job.id)
    assert status.state is JobState.FAILED
    assert status.last_run is not None
    assert "iterator 'Mine'" in status.last_run.reasons[0]
    assert (table.rows(), table.files()) == (previous, files)
    table.clock.now_ms += 4 * MINUTE_MS
    assert table.create_jobs(full=True).created == 0
    table.clock.now_ms += 2 * MINUTE_MS
    # The other leaf's job was never run: its lease is the long one.
    report = table.create_jobs(full=True)
    assert (report.released, report.created) == (1, 1)
    with pytest.raises(StateMovedOnError):
        run(table, job, make_iterators(failing.keeps))
    assert (
        run(table, table.sent_jobs()[-1], make_iterators(failing.keeps)).rows_written
        == 2 * 20_000 - 995
    )
    assert table.rows() == previous


def test_a_redelivered_message_is_retried(table: DataTable) -> None:
    previous = table.rows()
    job = create(table)
    for _ in range(2):
        with pytest.raises(UserCodeError):
            run(table, job, make_iterators(failing.raises))
    table.clock.now_ms += MINUTE_MS
    assert run(table, job, make_iterators(failing.keeps)).rows_written > 0
    assert table.rows() == previous
    assert table.tracker.job(TABLE_ID, job.id).state is JobState.COMMITTED


def test_row_keys_of_other_partitions_are_refused(table: DataTable) -> None:
    table.create_jobs(full=True)
    left = table.sent_jobs()[0]
    with pytest.raises(UserCodeError, match=r"row keys from \(1000\) to \(1499\)"):
        run(table, left, make_iterators(failing.moves_keys))


def test_an_unregistered_name_fails_the_job_as_its_code_would(table: DataTable) -> None:
    job = create(table)
    with pytest.raises(UserCodeError, match="no iterator 'Mine' is registered"):
        run(table, job, TableIterators("t"))
    table.clock.now_ms += 6 * MINUTE_MS
    assert table.create_jobs(full=True).released == 1


def test_a_changed_iterator_frees_the_files_at_once(table: DataTable) -> None:
    create(table)
    assert len(table.assigned()) == 2
    table.store.commit_or_raise(ChangeProcessing(iterator="", iterator_config=""))
    assert table.assigned() == []
    with table.store.reading() as state:
        assert state.processing.keeps_rows


def test_a_group_that_is_too_long_fails_the_job(table: DataTable) -> None:
    table.ingest_sorted(arrow_table(SCHEMA, [(600, n) for n in range(10)]))
    create(table)
    # Leaves with the most files come first.
    job = table.sent_jobs()[0]
    with pytest.raises(UserCodeError, match=r"at key \(600\): there are more than 11 rows"):
        run(table, job, make_iterators(failing.keeps, rows_max=11))
