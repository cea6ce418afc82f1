"""Restored versions, undone jobs and emptied tables, as transactions on a state."""

from pathlib import Path

import pytest

from sleeper.partitions.partition import PartitionId, tree_from_split_points
from sleeper.partitions.region import Range, Region
from sleeper.schema.model import schema_to_json
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.collection import CollectFiles, FilesCollected
from sleeper.statestore.transactions.compaction_jobs import CommitCompaction
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.partition_split import PushDownReferences, ReferenceMove
from sleeper.statestore.transactions.restore import ReinitialiseTable, RestoreVersion, UndoJob
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.statestore.transactions.transaction import Status
from tests.tables.state_table import ROOT, SCHEMA, StateTable, data_file, read_tables

LEFT, RIGHT = PartitionId("left"), PartitionId("right")
REGION = Region((Range(0, 5),))


def compact(
    table: StateTable,
    job: str,
    *inputs: str,
    output: str,
    partition: PartitionId = ROOT,
    keys: tuple[int, int] = (0, 9),
) -> None:
    assert not table.assign(job, *inputs, partition=partition).refused
    file = data_file(output, keys)
    commit = CommitCompaction(job, partition, inputs, file, table.clock.now_ms)
    assert not table.commit(commit).refused


def move_down(table: StateTable, *paths: str) -> None:
    moves = tuple(ReferenceMove(p, ROOT, ((LEFT, 5), (RIGHT, 5))) for p in paths)
    assert not table.commit(PushDownReferences(moves)).refused


def collect(table: StateTable) -> list[str]:
    with table.store.reading() as state:
        files = state.collection.unreferenced(table.clock.now_ms, 100)
    paths = tuple(f.path for f in files)
    if paths:
        table._commit(CollectFiles(paths, max(f.unreferenced for f in files)))
        table._commit(FilesCollected(paths))
    return list(paths)


def deletes(table: StateTable, version: int | None = None) -> list[int]:
    with table.store.reading(version) as state:
        return [d.number for d in state.deletes.overlapping(REGION)]


def delete_rows(table: StateTable) -> int:
    return table._commit(DeleteRows((REGION,)))


def test_a_restore_gives_back_the_files_of_the_version_and_only_those(table: StateTable) -> None:
    table.ingest("a")
    table.ingest("b")
    before = table.number()
    compact(table, "job", "a", "b", output="ab")
    table.ingest("c")
    restored = table.commit(RestoreVersion(before))
    assert table.leaf_paths("root") == ["a", "b"]
    assert restored.number is not None
    assert table.leaf_paths("root", restored.number - 1) == ["ab", "c"]
    again = table.commit(RestoreVersion(restored.number - 1))
    assert table.leaf_paths("root") == ["ab", "c"]
    assert again.number is not None
    assert table.leaf_paths("root", restored.number) == ["a", "b"]


def test_a_restored_file_is_collected_only_after_it_is_removed_again(table: StateTable) -> None:
    table.ingest("a")
    before = table.number()
    compact(table, "job", "a", output="b")
    table.commit(RestoreVersion(before))
    assert collect(table) == ["b"]
    assert "no longer readable" in table.commit(RestoreVersion(before)).reason
    assert table.leaf_paths("root") == ["a"]
    table.commit(ReinitialiseTable())
    assert collect(table) == ["a"]


def test_a_collection_that_began_before_a_restore_is_refused(table: StateTable) -> None:
    table.ingest("a")
    before = table.number()
    compact(table, "job", "a", output="b")
    collection = CollectFiles(("a",), table.number())
    table.commit(RestoreVersion(before))
    assert "still referenced" in table.commit(collection).reason


def test_references_of_split_partitions_return_and_are_pushed_down_again(
    table: StateTable,
) -> None:
    table.ingest("a")
    before = table.number()
    table.split(ROOT, 5, "left", "right")
    move_down(table, "a")
    compact(table, "job", "a", output="b", partition=LEFT, keys=(0, 4))
    table.commit(RestoreVersion(before))
    assert table.leaf_paths("left") == table.leaf_paths("right") == ["a"]
    move_down(table, "a")
    assert table.leaf_paths("left") == table.leaf_paths("right") == ["a"]
    with table.store.reading() as state:
        assert not list(state.files.inner_references())
    with table.store.reading(before) as state:
        assert [(r.partition_id, r.path) for r in state.files.references()] == [(ROOT, "a")]


def test_a_restore_ends_and_starts_deletes(table: StateTable) -> None:
    table.ingest("a")
    empty = table.number()
    first = delete_rows(table)
    second = delete_rows(table)
    assert deletes(table) == [first, second]
    table.commit(RestoreVersion(empty))
    assert deletes(table) == []
    restored = table.commit(RestoreVersion(first)).number
    assert deletes(table) == [first]
    assert restored is not None
    assert (deletes(table, restored - 1), deletes(table, second)) == ([], [first, second])
    table.commit(RestoreVersion(second))
    assert deletes(table) == [first, second]


def test_a_delete_that_a_restore_ended_is_forgotten_behind_the_horizon(table: StateTable) -> None:
    table.ingest("a")
    before = table.number()
    delete_rows(table)
    table.ingest("b")
    compact(table, "job", "b", output="c")
    passed = table.number()
    restored = table._commit(RestoreVersion(before))
    table._commit(CollectFiles(("b",), passed))
    assert len(read_tables(table.folder / "state.db")["deletes"]) == 1
    table._commit(CollectFiles(("c",), restored))
    assert read_tables(table.folder / "state.db")["deletes"] == []


def test_a_restore_releases_compaction_jobs(table: StateTable) -> None:
    table.ingest("a")
    table.ingest("b")
    table.assign("job", "a", "b")
    table.commit(RestoreVersion(2))
    commit = CommitCompaction("job", ROOT, ("a", "b"), data_file("ab"), table.clock.now_ms)
    assert "no longer holds its files" in table.commit(commit).reason
    assert table.leaf_paths("root") == ["a"]
    assert not table.assign("other", "a").refused


def test_a_repeated_restore_is_already_done_and_keeps_later_files(table: StateTable) -> None:
    table.ingest("a")
    restore = RestoreVersion(1)
    first = table.commit(restore)
    table.ingest("b")
    again = table.commit(restore)
    assert (again.status, again.number) == (Status.ALREADY_DONE, first.number)
    assert table.leaf_paths("root") == ["b"]
    assert "other content" in table.commit(RestoreVersion(2, id=restore.id)).reason


@pytest.mark.parametrize(("version", "reason"), [(0, "no longer readable"), (9, "does not exist")])
def test_a_version_that_is_not_readable_is_not_restored(
    table: StateTable, version: int, reason: str
) -> None:
    table.ingest("a")
    assert reason in table.commit(RestoreVersion(version)).reason
    newest = table.commit(RestoreVersion(table.number()))
    assert newest.status is Status.ALREADY_DONE
    assert table.leaf_paths("root") == ["a"]


def test_reinitialising_removes_files_and_deletes_and_keeps_partitions(table: StateTable) -> None:
    table.split(ROOT, 5, "left", "right")
    table.ingest("a")
    delete_rows(table)
    before = table.number()
    table.commit(ReinitialiseTable())
    assert (table.files(), deletes(table)) == ([], [])
    assert [leaf.id for leaf in table.leaves()] == [LEFT, RIGHT]
    table.commit(RestoreVersion(before))
    assert [f.path for f in table.files()] == ["a"]


# undo


def test_an_undo_takes_back_the_files_of_one_job(table: StateTable) -> None:
    table.ingest("a")
    table.commit(table.ingest_job("b", "c", job_id="load"))
    table.ingest("d")
    before = table.number()
    undone = table.commit(UndoJob("load"))
    assert undone.status is Status.APPLIED
    assert table.leaf_paths("root") == ["a", "d"]
    assert table.leaf_paths("root", before) == ["a", "b", "c", "d"]
    assert table.commit(UndoJob("load")).status is Status.ALREADY_DONE
    repeated = table.commit(table.ingest_job("e", job_id="load"))
    assert "other content" in repeated.reason


def test_pushed_down_references_are_taken_back(table: StateTable) -> None:
    table.commit(table.ingest_job("a", job_id="load"))
    table.split(ROOT, 5, "left", "right")
    move_down(table, "a")
    assert table.commit(UndoJob("load")).status is Status.APPLIED
    assert table.files() == []


def test_a_job_that_a_compaction_merged_with_others_is_not_undone(table: StateTable) -> None:
    table.commit(table.ingest_job("a", job_id="load"))
    table.ingest("b")
    table.split(ROOT, 5, "left", "right")
    move_down(table, "a", "b")
    merged = table.number()
    compact(table, "job", "a", "b", output="c", partition=LEFT, keys=(0, 4))
    outcome = table.commit(UndoJob("load"))
    assert outcome.refused
    assert "a compaction has merged rows of job load, transaction 2, with others" in outcome.reason
    compact(table, "next", "c", output="d", partition=LEFT, keys=(0, 4))
    assert "merged" in table.commit(UndoJob("load")).reason
    # the version before the compaction has the job's own files
    table.commit(RestoreVersion(merged))
    assert table.commit(UndoJob("load")).status is Status.APPLIED
    assert table.leaf_paths("left") == table.leaf_paths("right") == ["b"]


def test_a_file_that_was_compacted_alone_is_taken_back(table: StateTable) -> None:
    table.commit(table.ingest_job("a", "b", job_id="load"))
    table.ingest("c")
    compact(table, "job", "a", "b", output="ab")
    assert table.commit(UndoJob("load")).status is Status.APPLIED
    assert table.leaf_paths("root") == ["c"]


@pytest.mark.parametrize(("rows", "status"), [(None, Status.APPLIED), ("latest", Status.REFUSED)])
def test_a_compaction_that_leaves_no_row_merges_only_latest_rows(
    tmp_path: Path, rows: str | None, status: Status
) -> None:
    table = StateTable(tmp_path, "embedded")
    tree = tuple(tree_from_split_points(SCHEMA, [5]))
    table.commit(InitialiseTable(schema_to_json(SCHEMA), tree, rows=rows))
    left, right = tree[1].id, tree[2].id
    new = NewFile(data_file("a"), ((left, 5), (right, 5)))
    table.commit(AddFiles("load", table.clock.now_ms, (new,)))
    table.ingest("b", partition=left, keys=(0, 4))
    table.assign("job", "a", "b", partition=left)
    table.commit(CommitCompaction("job", left, ("a", "b"), None, table.clock.now_ms))
    outcome = table.commit(UndoJob("load"))
    assert outcome.status is status
    assert table.leaf_paths(right) == ([] if rows is None else ["a"])


def test_a_collected_file_is_not_overlooked(table: StateTable) -> None:
    table.commit(table.ingest_job("a", "b", job_id="load"))
    table.ingest("c")
    compact(table, "job", "a", "c", output="ac")
    compact(table, "next", "ac", output="d")
    # a and c are collected, b is still read, d has rows of a
    assert collect(table) == ["a", "c", "ac"]
    outcome = table.commit(UndoJob("load"))
    assert outcome.refused
    assert "and collected" in outcome.reason
    assert table.leaf_paths("root") == ["b", "d"]


def test_an_undo_releases_the_compaction_jobs_of_its_files(table: StateTable) -> None:
    table.commit(table.ingest_job("a", job_id="load"))
    table.ingest("b")
    table.assign("job", "a", "b")
    table.commit(UndoJob("load"))
    commit = CommitCompaction("job", ROOT, ("a", "b"), data_file("ab"), table.clock.now_ms)
    assert table.commit(commit).refused
    assert not table.assign("other", "b").refused


def test_an_undone_job_that_a_restore_brought_back_is_undone_again(table: StateTable) -> None:
    table.commit(table.ingest_job("a", job_id="load"))
    before = table.number()
    table.commit(UndoJob("load"))
    table.commit(RestoreVersion(before))
    assert table.leaf_paths("root") == ["a"]
    assert table.commit(UndoJob("load")).status is Status.APPLIED
    assert table.leaf_paths("root") == []


def test_unknown_jobs_and_jobs_without_rows_are_not_undone(table: StateTable) -> None:
    assert "no ingest or import has the id none" in table.commit(UndoJob("none")).reason
    table.commit(AddFiles("empty", table.clock.now_ms, ()))
    assert table.commit(UndoJob("empty")).status is Status.ALREADY_DONE


def test_the_history_names_restores_and_undos(table: StateTable) -> None:
    table.commit(table.ingest_job("a", job_id="load"))
    table.commit(UndoJob("load"))
    table.commit(RestoreVersion(2, id="restore-1"))
    table.commit(ReinitialiseTable(id="empty-1"))
    with table.store.reading() as state:
        found = [(e.operation, e.job) for e in state.history.newest(3).entries]
    assert found == [
        ("reinitialise table", "empty-1"),
        ("restore", "restore-1"),
        ("undo", "load"),
    ]
