"""Ingests in parts commit all parts or none."""

import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.datafiles.write.file import FileSettings
from sleeper.datafiles.write.partitioned import FileStrategy
from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.ingest.parts import PartTarget, begin_parts, write_part
from sleeper.ingest.run import IngestResult, IngestTable, commit_new_files
from sleeper.runs.commit import find_earlier_commit
from sleeper.statestore.transactions.add_files import NewFile
from sleeper.storage.location import DataRoot
from tests.clock import DAY_MS
from tests.tables.data_table import LONG_SCHEMA, DataTable
from tests.tables.watched_ports import TABLE_ID
from tests.unit.conftest import MakeTable

KIND = pa.schema([("v", pa.string()), ("key", pa.int64())])


def ingest_table(table: DataTable) -> IngestTable:
    return IngestTable(
        TABLE_ID, LONG_SCHEMA, table.store, table.root, table.engine, table.clock, FileSettings()
    )


def begin_import(table: DataTable, kind: pa.Schema = KIND) -> PartTarget:
    return pickle.loads(pickle.dumps(begin_parts(ingest_table(table), kind, "(rows)")))


def part(table: DataTable, target: PartTarget, *keys: int | None) -> tuple[NewFile, ...]:
    batch = pa.record_batch([pa.array([f"v{k}" for k in keys]), pa.array(keys)], schema=KIND)
    output = write_part(target, iter([batch]), "(part)", DataRoot(table.root.folder), table.engine)
    return pickle.loads(pickle.dumps(output))


def commit(table: DataTable, target: PartTarget, *files: NewFile, job: str = "j") -> IngestResult:
    return commit_new_files(ingest_table(table), job, target.start, files, f"rows of {job}")


def test_all_parts_are_committed_together_sorted_in_their_leaves(
    make_table: MakeTable,
) -> None:
    table = make_table(split_points=[5])
    target = begin_import(table)
    files = (*part(table, target, 7, 3), *part(table, target, 9, 1, 4))
    assert table.rows() == []
    assert commit(table, target, *files).rows == 5
    assert table.rows() == [(k, f"v{k}") for k in (1, 3, 4, 7, 9)]
    for file in table.files():
        kind = pq.read_schema(table.root.folder / file.path)
        assert [field.metadata[b"PARQUET:field_id"] for field in kind] == [b"1", b"2"]


def test_part_without_rows_writes_nothing(table: DataTable) -> None:
    assert part(table, begin_import(table)) == ()
    assert table.paths_on_disk() == []


def test_repeated_part_counts_once(table: DataTable) -> None:
    target = begin_import(table)
    _, second = part(table, target, 1, 2), part(table, target, 1, 2)
    commit(table, target, *second)
    assert [row[0] for row in table.rows()] == [1, 2]


def test_a_job_that_comes_again_changes_nothing(table: DataTable) -> None:
    target = begin_import(table)
    commit(table, target, *part(table, target, 1))
    again = begin_import(table)
    result = commit(table, again, *part(table, again, 1))
    assert (result.done_before, len(table.rows())) == (True, 1)


def test_id_of_another_request_is_refused(table: DataTable) -> None:
    target = begin_import(table)
    commit(table, target, *part(table, target, 1))
    with pytest.raises(InvalidRequestError, match="used by transaction"):
        find_earlier_commit(table.store, "j", "something else")


def test_concurrently_split_leaves_keep_their_rows(table: DataTable) -> None:
    target = begin_import(table)
    files = part(table, target, 1, 9)
    table.split_at(table.leaves()[0].id, 5)
    commit(table, target, *files)
    assert [row[0] for row in table.rows()] == [1, 9]


def test_old_run_cannot_commit(table: DataTable) -> None:
    target = begin_import(table)
    files = part(table, target, 1)
    table.clock.now_ms += 10 * DAY_MS
    table.ingest([5])
    with pytest.raises(StateMovedOnError, match="came too late"):
        commit(table, target, *files)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (pa.schema([("key", pa.int64())]), "missing: 'v'"),
        (pa.schema([*KIND, ("more", pa.int64())]), "not in the schema: 'more'"),
        (pa.schema([("v", pa.string()), ("key", pa.string())]), "field 'key' is string"),
    ],
)
def test_rows_of_wrong_types_are_refused_before_reading(
    table: DataTable, kind: pa.Schema, reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        begin_import(table, kind)


def test_error_names_the_row_that_does_not_fit(table: DataTable) -> None:
    with pytest.raises(InvalidRequestError, match=r"\(part\), row 2: field 'key'.*null"):
        part(table, begin_import(table), 1, None)
    assert table.paths_on_disk() == []
    assert [p.name for p in table.engine.spill_folder.glob("ingest-*")] == []


def test_one_file_per_leaf_by_property(make_table: MakeTable) -> None:
    table = make_table(split_points=[5])
    target = begin_import(table)
    by_leaf = PartTarget(
        target.table_id,
        target.schema,
        target.leaves,
        target.start,
        target.files,
        FileStrategy.ONE_FILE_PER_LEAF,
    )
    assert len(part(table, by_leaf, 1, 9)) == 2
