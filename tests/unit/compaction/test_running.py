"""Runs of compaction jobs: output, concurrency, lease and damage."""

import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datafusion import SessionContext

import sleeper.compaction.run as running
from sleeper.compaction.job import CompactionJob, parse_compaction_job
from sleeper.compaction.merge_job import MergeJob
from sleeper.compaction.run import Lease
from sleeper.datafiles.engine.session import open_session
from sleeper.datafiles.key_files import KeyFileCache
from sleeper.datafiles.merge.frame import merge_frame
from sleeper.datafiles.merge.steps import ProcessingStep
from sleeper.errors import (
    DataError,
    InvalidRequestError,
    StateMovedOnError,
    UnavailableError,
)
from sleeper.files import DataFile
from sleeper.jobs.status import JobState
from sleeper.partitions.partition import ROOT_PARTITION_ID as ROOT
from sleeper.processing.model import NO_PROCESSING
from sleeper.statestore.transactions.compaction_jobs import (
    CommitCompaction,
    ReleaseJobs,
    RenewLeases,
)
from tests.tables.data_table import DataTable
from tests.tables.watched_ports import TABLE_ID
from tests.unit.conftest import MakeTable

UNCHANGED = ProcessingStep(NO_PROCESSING, 0)


def create_job(table: DataTable, files: int = 2, rows: int = 10) -> CompactionJob:
    """Ingests some files and creates one job for all of them."""
    for i in range(files):
        table.ingest(range(i, i + rows))
    table.create_jobs(full=True)
    return table.sent_jobs()[-1]


def release(table: DataTable, job: CompactionJob) -> None:
    table.store.commit_or_raise(ReleaseJobs((job.id,), given_up=True))


def test_output_contains_the_rows_of_all_inputs_in_order(table: DataTable) -> None:
    job = create_job(table, files=5, rows=100)
    previous = table.rows()
    result = table.run(job)
    (file,) = table.files()
    assert file.path == result.output.path if result.output else False
    assert (result.rows_read, result.rows_written, file.rows) == (500, 500, 500)
    assert (file.smallest_key, file.largest_key) == ((0,), (103,))
    assert (file.smallest_number, file.largest_number) == (2, 6)
    assert table.rows() == previous
    assert table.assigned() == []
    status = table.tracker.job(TABLE_ID, job.id)
    assert status.state is JobState.COMMITTED
    assert status.last_run is not None
    assert (status.last_run.rows_read, status.last_run.rows_written) == (500, 500)
    assert status.last_run.task_id == "task"


def test_redelivered_message_after_the_commit_is_already_done(table: DataTable) -> None:
    job = create_job(table)
    table.run(job)
    output = table.paths_on_disk()
    runs = len(table.tracker.job(TABLE_ID, job.id).runs)
    assert table.run(job).already_done
    # A second run would appear in the tracker without an end.
    assert len(table.tracker.job(TABLE_ID, job.id).runs) == runs
    assert table.paths_on_disk() == output


def test_redelivery_records_an_unrecorded_commit(
    table: DataTable,
) -> None:
    job = create_job(table)
    table.tracker.record = lambda *_: None  # type: ignore[method-assign]
    table.run(job)
    table.reopen()
    assert table.tracker.job(TABLE_ID, job.id).state is JobState.CREATED
    table.run(job)
    assert table.tracker.job(TABLE_ID, job.id).state is JobState.COMMITTED


def test_only_rows_of_the_partition_are_compacted(make_table: MakeTable) -> None:
    table = make_table(split_points=[10])
    for _ in range(3):
        table.ingest(range(20))
    previous = table.rows()
    table.create_jobs(full=True)
    left, right = table.sent_jobs()
    assert table.run(left).rows_written == 30
    assert table.rows() == previous
    assert len(table.files()) == 4
    assert table.run(right).rows_written == 30
    assert table.rows() == previous
    assert len(table.files()) == 2


def test_merge_plan_does_not_sort(make_table: MakeTable) -> None:
    table = make_table(split_points=[10])
    for _ in range(3):
        table.ingest(range(20))
    with table.store.reading() as state:
        (leaf, _) = state.partitions.leaves()
        files = tuple(state.files.leaf_files(leaf.id))
    job = MergeJob(TABLE_ID, table.schema, leaf, files, 0, UNCHANGED)
    frame, _ = merge_frame(job.request(table.root, {}, KeyFileCache(0)), open_session(table.engine))
    plan = str(frame.execution_plan().display_indent())
    assert "SortPreservingMergeExec" in plan
    assert "SortExec" not in plan
    assert plan.count("DataSourceExec") == 3


def test_file_inside_the_partition_has_no_predicate(make_table: MakeTable) -> None:
    table = make_table(split_points=[10])
    table.ingest([1, 2])
    table.ingest([1, 12])
    with table.store.reading() as state:
        (leaf, _) = state.partitions.leaves()
        files = tuple(state.files.leaf_files(leaf.id))
    job = MergeJob(TABLE_ID, table.schema, leaf, files, 0, UNCHANGED)
    request = job.request(table.root, {}, KeyFileCache(0))
    assert [i.regions for i in request.inputs] == [None, (leaf.region,)]


def test_many_files_are_merged_in_passes(make_table: MakeTable) -> None:
    table = make_table(engine_changes={"merge_files_max": 3})
    job = create_job(table, files=11)
    previous = table.rows()
    assert table.run(job).rows_written == 110
    assert table.rows() == previous
    assert not list(table.engine.spill_folder.iterdir())


def test_concurrent_split_leaves_the_output_until_push_down(
    table: DataTable,
) -> None:
    job = create_job(table)
    previous = table.rows()
    table.watched.before_commit.append((CommitCompaction, lambda: table.split_at(ROOT, 5)))
    table.run(job)
    with table.store.reading() as state:
        assert [r.partition_id for r in state.files.references()] == [ROOT]
    assert table.rows() == previous
    table.create_jobs()
    with table.store.reading() as state:
        assert len(list(state.files.references())) == 2
    assert table.rows() == previous


def test_job_released_before_its_commit_changes_nothing(table: DataTable) -> None:
    job = create_job(table)
    previous, files = table.rows(), table.files()
    table.watched.before_commit.append((CommitCompaction, lambda: release(table, job)))
    with pytest.raises(StateMovedOnError, match="no longer holds its files"):
        table.run(job)
    assert table.files() == files
    assert table.rows() == previous
    assert table.tracker.job(TABLE_ID, job.id).state is JobState.FAILED


def test_concurrent_runs_of_one_job_commit_once(table: DataTable) -> None:
    job = create_job(table)
    previous = table.rows()
    results = []
    table.watched.before_commit.append((CommitCompaction, lambda: results.append(table.run(job))))
    assert table.run(job).already_done
    assert [r.already_done for r in results] == [False]
    assert len(table.files()) == 1
    assert table.rows() == previous


def test_expired_lease_without_release_commits(table: DataTable) -> None:
    job = create_job(table)
    table.watched.before_commit.append((CommitCompaction, lambda: table.clock.pass_minutes(120)))
    assert table.run(job).rows_written == 20


def test_run_renews_the_lease_first(table: DataTable) -> None:
    job = create_job(table)
    table.clock.pass_minutes(59)
    renewed = []

    def look() -> None:
        with table.store.reading() as state:
            job_state = state.jobs.get(job.id)
        assert job_state is not None
        renewed.append(job_state.lease_expiry_ms - table.clock())

    table.watched.before_commit.append((CommitCompaction, look))
    table.run(job)
    assert renewed == [3_600_000]


def test_lease_is_renewed_periodically(table: DataTable) -> None:
    job = create_job(table)
    with Lease(table.store, job.id, 0.06, table.clock) as lease:
        for _ in range(200):
            table.clock.pass_minutes(1)
            renewals = [t for t in table.watched.committed if isinstance(t, RenewLeases)]
            if len(renewals) > 2:
                break
            wait_briefly()
    lease.check()
    table.clock.pass_minutes(1)
    with table.store.reading() as state:
        job_state = state.jobs.get(job.id)
    assert job_state is not None
    assert len(renewals) > 2


def wait_briefly() -> None:
    time.sleep(0.01)


def test_run_of_a_released_job_stops(table: DataTable, monkeypatch: pytest.MonkeyPatch) -> None:
    job = create_job(table)
    names = []

    def slow(*arguments: Any) -> None:
        *_, on_rows, _ = arguments
        release(table, job)
        for _ in range(500):
            wait_briefly()
            names.append(1)
            on_rows(1)

    monkeypatch.setattr(running, "write_output", slow)
    with pytest.raises(StateMovedOnError, match="no longer holds its files"):
        table.run(job, lease_seconds=0.06)
    assert len(names) < 400


def test_lease_survives_one_failed_renewal(table: DataTable) -> None:
    job = create_job(table)
    lease = Lease(table.store, job.id, 0.06, table.clock)
    commit = table.watched.commit_or_raise
    failures = iter([None, UnavailableError("busy"), None, None])
    renewals_tried = []

    def flaky(transaction: Any) -> Any:
        renewals_tried.append(transaction)
        error = next(failures, None)
        if error is not None:
            raise error
        return commit(transaction)

    table.watched.commit_or_raise = flaky  # type: ignore[method-assign]
    with lease:
        for _ in range(200):
            if len(renewals_tried) > 2:
                break
            wait_briefly()
    lease.check()
    assert len(renewals_tried) > 2


@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "not parquet"])
def test_error_names_the_damaged_input(table: DataTable, damage: str) -> None:
    job = create_job(table, files=3, rows=2000)
    bad = table.files()[1].path
    damage_file(table.root.folder / bad, damage)
    with pytest.raises(DataError, match=bad):
        table.run(job)
    status = table.tracker.job(TABLE_ID, job.id)
    assert status.state is JobState.FAILED
    assert bad in status.reasons[0]
    assert len(table.files()) == 3
    # The files stay assigned until the lease expires, which delays the next try.
    assert table.assigned() == [job.id]
    table.clock.pass_minutes(61)
    assert table.create_jobs().released == 1


def test_decodable_bit_flip_is_never_compacted(table: DataTable) -> None:
    job = create_job(table, rows=1000)
    bad = table.files()[1]
    previous = table.rows()
    path = table.root.folder / bad.path
    content = path.read_bytes()
    for place in range(len(content) // 4, len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with contextlib.suppress(DataError):
            if table.rows() != previous:
                break
    else:
        raise AssertionError("no flip decodes")
    on_disk = table.paths_on_disk()
    with pytest.raises(DataError, match=f"{bad.path} is damaged: bytes .* their checksum"):
        table.run(job)
    assert {file.path for file in table.files()} == set(job.inputs)
    assert table.paths_on_disk() == on_disk
    assert table.tracker.job(TABLE_ID, job.id).state is JobState.FAILED
    path.write_bytes(content)
    table.run(job)
    assert table.rows() == previous


def damage_file(path: Path, damage: str) -> None:
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "changed":
        # The header of the first page. Without checksums, damage inside a page is invisible.
        path.write_bytes(content[:4] + b"\xff" * 64 + content[68:])
    elif damage == "gone":
        path.unlink()
    else:
        path.write_text("a,b\n1,2\n")


def test_input_with_missing_rows_is_not_compacted(table: DataTable) -> None:
    job = create_job(table)
    _, second = table.files()
    folder = table.root.folder
    short = table.ingest([1])[0]
    for suffix in ("", ".checksum"):
        content = (folder / (short.path + suffix)).read_bytes()
        (folder / (second.path + suffix)).write_bytes(content)
    with pytest.raises(DataError, match=f"{second.path} has 1 rows .expected 10"):
        table.run(job)
    assert len(table.files()) == 3


def test_files_collected_after_a_release_are_not_damage(
    table: DataTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = create_job(table)
    table.set(sleeper__table__gc__delay__minutes=0)
    write = running.write_output
    once = [True]

    def collect_inputs(*arguments: Any) -> DataFile | None:
        if once:
            once.clear()
            release(table, job)
            table.compact(full=True)
            table.collect()
        return write(*arguments)

    monkeypatch.setattr(running, "write_output", collect_inputs)
    with pytest.raises(StateMovedOnError, match="no longer holds its files"):
        table.run(job)
    assert len(table.rows()) == 20


def test_full_disk_is_unavailable_and_retried(
    table: DataTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = create_job(table)

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sleeper.datafiles.write.merged.write_sorted", full)
    with pytest.raises(UnavailableError, match="No space left"):
        table.run(job)
    assert table.tracker.job(TABLE_ID, job.id).state is JobState.FAILED
    monkeypatch.undo()
    assert table.run(job).rows_written == 20
    assert table.tracker.job(TABLE_ID, job.id).state is JobState.COMMITTED


def test_failed_tracker_does_not_fail_the_run(table: DataTable) -> None:
    job = create_job(table)

    def fail(*_: Any) -> None:
        raise UnavailableError("no tracker")

    table.tracker.record = fail  # type: ignore[method-assign]
    assert table.run(job).rows_written == 20


def test_inputs_without_rows_of_the_partition_leave_no_file(table: DataTable) -> None:
    table.ingest([1, 31])
    table.ingest([2, 32])
    left, _ = table.split_at(ROOT, 20)
    table.split_at(left, 10)
    previous = table.rows()
    results = table.compact(full=True)
    assert [r.output for r in results if isinstance(r, running.CompactionResult)].count(None) == 1
    assert table.rows() == previous
    assert table.assigned() == []


def test_run_older_than_half_the_orphan_age_is_refused(table: DataTable) -> None:
    job = create_job(table)
    days = 7 * 24 * 60
    table.watched.before_commit.append(
        (CommitCompaction, lambda: table.clock.pass_minutes(days + 1))
    )
    with pytest.raises(StateMovedOnError, match="more than half the orphan age"):
        table.run(job)
    assert len(table.files()) == 2


def test_message_json_round_trip_and_refusals() -> None:
    job = CompactionJob("j", TABLE_ID, ROOT, ("a", "b"), created_ms=5)
    assert parse_compaction_job(job.to_json()) == job
    many = replace(job, inputs=tuple(map(str, range(2000))))
    assert parse_compaction_job(many.to_json()).inputs == ()
    for body in ("", "[]", "{}", '{"jobId":1,"tableId":"t","partitionId":"p","createdMs":1}'):
        with pytest.raises(InvalidRequestError, match="compaction message"):
            parse_compaction_job(body)


def test_plan_text_shows_a_sort() -> None:
    # The plan test above depends on the name of the sort node.
    frame = SessionContext().from_pydict({"a": [2, 1]}).sort_by("a")
    assert "SortExec" in str(frame.execution_plan().display_indent())
