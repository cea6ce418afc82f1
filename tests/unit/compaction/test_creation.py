"""Creation of compaction jobs: push down, release, assignment and dispatch."""

from collections import Counter
from collections.abc import Sequence

import pytest

from sleeper.compaction.plan import CreationReport
from sleeper.compaction.push_down import push_down_references
from sleeper.datafiles.write.partitioned import FileStrategy
from sleeper.errors import StateMovedOnError
from sleeper.jobs.status import JobState
from sleeper.partitions.partition import ROOT_PARTITION_ID as ROOT
from sleeper.partitions.partition import PartitionId
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.statestore.transactions.compaction_jobs import (
    AssignFiles,
    JobAssignment,
    ReleaseJobs,
    RenewLeases,
)
from sleeper.statestore.transactions.partition_split import PushDownReferences
from tests.tables.data_table import DataTable
from tests.tables.watched_ports import TABLE_ID
from tests.unit.conftest import MakeTable


def rows_of_leaves(table: DataTable) -> dict[str, list[int]]:
    with table.store.reading() as state:
        return {p: [f.rows for f in files] for p, files in state.files.leaf_references()}


def set_basic_strategy(table: DataTable, files: int = 2) -> DataTable:
    return table.set(
        sleeper__table__compaction__strategy__class="BasicCompactionStrategy",
        sleeper__table__compaction__files__batch__size=files,
    )


def test_push_down_moves_references_to_leaves_within_key_bounds(
    table: DataTable,
) -> None:
    table.ingest(range(10))
    table.ingest(range(5, 8))
    table.ingest([100, 101])
    left, right = table.split_at(ROOT, 8)
    previous = table.rows()
    assert push_down_references(table.store) == 3
    assert rows_of_leaves(table) == {left: [5, 3], right: [5, 2]}
    assert table.rows() == previous
    assert push_down_references(table.store) == 0


def test_push_down_crosses_levels_with_at_least_one_row_each(table: DataTable) -> None:
    table.ingest([1, 31])
    left, right = table.split_at(ROOT, 20)
    table.split_at(left, 10)
    table.split_at(right, 30)
    push_down_references(table.store)
    assert sorted(rows_of_leaves(table).values()) == [[1], [1], [1], [1]]


def test_push_down_uses_bounds_of_every_key_field(
    make_table: MakeTable,
) -> None:
    schema = Schema(
        (Field("a", PrimitiveType.LONG), Field("b", PrimitiveType.STRING)),
        (),
        (Field("v", PrimitiveType.STRING),),
    )
    table = make_table(schema=schema)
    table.ingest([(1, "a"), (9, "c")])
    table.ingest([(9, "x"), (9, "z")])
    table.split_at(ROOT, 5)
    previous = table.rows()
    push_down_references(table.store)
    assert Counter(map(len, rows_of_leaves(table).values())) == {1: 1, 2: 1}
    assert table.rows() == previous


def test_push_down_leaves_assigned_references(table: DataTable) -> None:
    set_basic_strategy(table)
    table.ingest(range(10))
    table.ingest(range(10))
    table.ingest(range(10, 30))
    table.create_jobs()
    left, right = table.split_at(ROOT, 5)
    assert push_down_references(table.store) == 1
    assert rows_of_leaves(table) == {right: [20]}
    table.run_all()
    assert push_down_references(table.store) == 1
    assert rows_of_leaves(table) == {left: [10], right: [20, 10]}


def test_push_down_commits_bounded_entries(make_table: MakeTable) -> None:
    table = make_table()
    for i in range(30):
        table.ingest([0, 1000 + i])
    points = list(range(1, 1000, 2))
    halves = [ROOT]
    for point in points[:120]:
        halves.append(table.split_at(halves[-1], point)[1])
    assert push_down_references(table.store) == 30
    moves = [t for t in table.watched.committed if isinstance(t, PushDownReferences)]
    assert len(moves) > 1
    assert max(sum(len(m.to) for m in t.moves) for t in moves) <= 2_000
    assert sum(map(len, rows_of_leaves(table).values())) == 30 * 121


def test_concurrent_split_during_push_down_loses_no_row(table: DataTable) -> None:
    table.ingest(range(100))
    left, right = table.split_at(ROOT, 50)
    previous = table.rows()
    table.watched.before_commit.append((PushDownReferences, lambda: table.split_at(left, 25)))
    table.create_jobs()
    assert table.rows() == previous
    table.create_jobs()
    assert sorted(rows_of_leaves(table)) == sorted([f"{left}L", f"{left}R", right])
    assert table.rows() == previous


def test_concurrent_assignment_during_push_down_keeps_its_file(
    table: DataTable,
) -> None:
    (file,) = table.ingest(range(100))
    table.split_at(ROOT, 50)
    claim = JobAssignment("other", ROOT, (file.path,), table.clock() + 1000)
    table.watched.before_commit.append(
        (PushDownReferences, lambda: table.store.commit_or_raise(AssignFiles((claim,))))
    )
    assert table.create_jobs() == CreationReport(0, 0, 0, 0)
    assert table.assigned() == ["other"]


def test_jobs_are_assigned_then_sent_then_recorded(table: DataTable) -> None:
    set_basic_strategy(table)
    paths = [f.path for _ in range(2) for f in table.ingest(range(10))]
    held_when_sent = []
    send = table.send

    def record_and_send(bodies: Sequence[str]) -> None:
        held_when_sent.extend(table.assigned())
        send(bodies)

    table.send = record_and_send  # type: ignore[method-assign]
    assert table.create_jobs() == CreationReport(0, 0, 1, 0)
    (job,) = table.sent_jobs()
    assert held_when_sent == [job.id]
    assert (job.table_id, job.partition_id, sorted(job.inputs)) == (TABLE_ID, ROOT, sorted(paths))
    status = table.tracker.job(TABLE_ID, job.id)
    assert (status.state, status.inputs) == (JobState.CREATED, 2)
    assert table.create_jobs() == CreationReport(0, 0, 0, 0)


def test_rule_4_next_creation_dispatches_assigned_jobs(
    table: DataTable,
) -> None:
    set_basic_strategy(table)
    for _ in range(2):
        table.ingest(range(10))

    def fail(bodies: Sequence[str]) -> None:
        raise ConnectionError

    send, table.send = table.send, fail  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        table.create_jobs()
    table.send = send  # type: ignore[method-assign]
    assert table.create_jobs() == CreationReport(0, 0, 0, 1)
    assert [job.id for job in table.sent_jobs()] == table.assigned()
    assert table.sent_jobs()[0].inputs == tuple(f.path for f in table.files())


def test_rule_4_expired_jobs_release_their_files_to_new_jobs(table: DataTable) -> None:
    set_basic_strategy(table)
    for _ in range(2):
        table.ingest(range(10))
    table.create_jobs()
    (lost,) = table.sent_jobs()
    table.clock.pass_minutes(59)
    assert table.create_jobs() == CreationReport(0, 0, 0, 0)
    table.clock.pass_minutes(2)
    assert table.create_jobs() == CreationReport(1, 0, 1, 0)
    status = table.tracker.job(TABLE_ID, lost.id)
    assert status.state is JobState.FAILED
    assert "lease ran out at 2026-01-01T01:00:00.000Z" in status.reasons[0]
    _, new = table.sent_jobs()
    assert new.id != lost.id
    with pytest.raises(StateMovedOnError, match="no longer holds its files"):
        table.run(lost)
    assert table.run(new).rows_written == 20


def test_concurrent_renewal_prevents_the_release(table: DataTable) -> None:
    set_basic_strategy(table)
    for _ in range(2):
        table.ingest(range(10))
    table.create_jobs()
    (job,) = table.sent_jobs()
    table.clock.pass_minutes(61)
    renewal = RenewLeases((job.id,), table.clock() + 60_000)
    table.watched.before_commit.append((ReleaseJobs, lambda: table.store.commit_or_raise(renewal)))
    assert table.create_jobs() == CreationReport(0, 0, 0, 0)
    assert table.tracker.job(TABLE_ID, job.id).state is JobState.CREATED
    assert table.run(job).rows_written == 20


def test_concurrent_commit_prevents_the_release(table: DataTable) -> None:
    set_basic_strategy(table)
    for _ in range(2):
        table.ingest(range(10))
    table.create_jobs()
    (job,) = table.sent_jobs()
    table.clock.pass_minutes(61)
    table.watched.before_commit.append((ReleaseJobs, lambda: table.run(job)))
    assert table.create_jobs() == CreationReport(0, 0, 0, 0)
    assert table.tracker.job(TABLE_ID, job.id).state is JobState.COMMITTED


def test_refused_assignment_does_not_refuse_other_jobs(
    make_table: MakeTable,
) -> None:
    table = set_basic_strategy(make_table(split_points=[10, 20]))
    for _ in range(2):
        table.ingest([1, 11, 21], strategy=FileStrategy.ONE_FILE_PER_LEAF)
    other = set_basic_strategy(table)
    table.watched.before_commit.append((AssignFiles, lambda: assign_one_file(other)))
    assert table.create_jobs() == CreationReport(0, 0, 2, 0)
    assert len(table.assigned()) == 3
    table.run_all()
    assert len(table.assigned()) == 1


def assign_one_file(table: DataTable) -> None:
    with table.store.reading() as state:
        partition_id, files = next(state.files.leaf_references())
    claim = JobAssignment("other", partition_id, (files[0].path,), table.clock() + 10**6)
    table.store.commit_or_raise(AssignFiles((claim,)))


def test_creation_limit_counts_existing_jobs_and_prefers_full_leaves(
    make_table: MakeTable,
) -> None:
    table = set_basic_strategy(make_table(split_points=[10, 20]))
    table.set(sleeper__table__compaction__job__creation__limit=1)
    for keys in ([1, 11], [1, 11], [11, 21], [21]):
        table.ingest(keys, strategy=FileStrategy.ONE_FILE_PER_LEAF)
    leaf_of = {p.region.ranges[0].min: p.id for p in table.leaves()}
    assert table.create_jobs().created == 1
    assert table.sent_jobs()[0].partition_id == leaf_of[10]
    assert table.create_jobs().created == 0
    table.run_all()
    assert table.create_jobs().created == 1


def test_full_compaction_leaves_one_file_in_every_leaf(make_table: MakeTable) -> None:
    table = make_table(split_points=[10])
    for start in range(0, 20, 3):
        table.ingest(range(start, start + 5))
    previous = table.rows()
    assert all(len(rows) > 1 for rows in rows_of_leaves(table).values())
    table.compact(full=True)
    assert [len(rows) for rows in rows_of_leaves(table).values()] == [1, 1]
    assert table.rows() == previous


def test_empty_table_needs_no_jobs(table: DataTable) -> None:
    assert table.create_jobs() == CreationReport(0, 0, 0, 0)
    assert table.create_jobs(full=True) == CreationReport(0, 0, 0, 0)


def test_size_ratio_jobs_per_partition_are_limited(
    table: DataTable,
) -> None:
    most = "compaction__strategy__sizeratio__max__concurrent__jobs__per__partition"
    table.set(sleeper__table__compaction__files__batch__size=4, **{f"sleeper__table__{most}": 1})
    for _ in range(8):
        table.ingest(range(10))
    assert table.create_jobs().created == 1
    assert table.create_jobs().created == 0
    table.run_all()
    assert table.create_jobs().created == 1


def test_messages_contain_partition_ids_of_the_tree(table: DataTable) -> None:
    set_basic_strategy(table)
    for _ in range(2):
        table.ingest(range(10))
    table.create_jobs()
    assert [j.partition_id for j in table.sent_jobs()] == [PartitionId("root")]
