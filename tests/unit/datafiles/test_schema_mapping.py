"""Scans of files of earlier schemas: columns by id, in the declared order, with pruning."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import SessionContext

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.session import open_session
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge.frame import merge_frame
from sleeper.datafiles.merge.plan import merge
from sleeper.datafiles.merge.request import MergeInput, MergeRequest
from sleeper.datafiles.merge.rows import merge_rows, needed_names
from sleeper.datafiles.write import merged
from sleeper.datafiles.write.file import DataFileWriter, FileSettings
from sleeper.datafiles.write.partitioned import WriteTarget
from sleeper.errors import DataError
from sleeper.partitions.partition import tree_from_split_points
from sleeper.partitions.region import key_region
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.storage.location import DataRoot

FIRST = Schema(
    (Field("key", PrimitiveType.LONG),),
    (Field("time", PrimitiveType.LONG),),
    (
        Field("a", PrimitiveType.INT, nullable=True),
        Field("b", PrimitiveType.INT, nullable=True),
        Field("gone", PrimitiveType.STRING, nullable=True),
    ),
)
KEY, TIME, A, B, _ = FIRST.fields
# Names of `a` and `b` are exchanged, `a` is wider, `new` and `other` are added.
SECOND = Schema(
    (KEY,),
    (TIME,),
    (
        Field("new", PrimitiveType.STRING, nullable=True, id=6, default="x"),
        replace(B, name="a"),
        replace(A, name="b", type=PrimitiveType.LONG),
        Field("other", PrimitiveType.DOUBLE, nullable=True, id=7),
    ),
    version=9,
    earlier=(FIRST,),
)


def write(folder: Path, schema: Schema, keys: range, *values: object) -> MergeInput:
    name = f"{schema.version}-{keys.start}.parquet"
    writer = DataFileWriter(DataRoot(folder), name, schema, FileSettings())
    rows = [(key, 0, *values) for key in keys]
    arrays = [
        pa.array(column, each.type)
        for column, each in zip(zip(*rows, strict=True), arrow_schema(schema), strict=True)
    ]
    writer.write([pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema))])
    file = writer.finish()
    assert file.schema_version == schema.version
    return MergeInput(str(folder / name), schema_version=file.schema_version)


@pytest.fixture
def inputs(tmp_path: Path) -> tuple[MergeInput, ...]:
    old = write(tmp_path, FIRST, range(1000), 1, 2, "old")
    return old, write(tmp_path, SECOND, range(1), "y", 3, 2**40, 0.5), old


def session(folder: Path) -> SessionContext:
    return open_session(EngineSettings(folder))


def test_a_file_of_an_earlier_schema_has_the_fields_by_id(
    tmp_path: Path, inputs: tuple[MergeInput, ...]
) -> None:
    request = MergeRequest(SECOND, inputs, limit=3)
    found = pa.Table.from_batches(merge(request, EngineSettings(tmp_path)))
    old = {"key": 0, "time": 0, "new": "x", "a": 2, "b": 1, "other": None}
    new = {"key": 0, "time": 0, "new": "y", "a": 3, "b": 2**40, "other": 0.5}
    assert sorted(found.to_pylist(), key=repr) == sorted([old, new, old], key=repr)


def test_the_mapping_needs_no_sort_and_prunes_rows_by_key(
    tmp_path: Path, inputs: tuple[MergeInput, ...]
) -> None:
    placed = tuple(replace(each, regions=(key_region(SECOND, (3,)),)) for each in inputs)
    for columns in (None, ("a", "new"), ("key",)):
        frame, _ = merge_frame(MergeRequest(SECOND, placed, columns), session(tmp_path))
        plan = frame.execution_plan().display_indent()
        assert "SortExec" not in plan
        assert plan.count("DataSourceExec") == plan.count("pruning_predicate=") == 3
        assert "SortPreservingMergeExec" in plan
        assert "gone" not in plan


def test_a_file_of_the_same_schema_is_not_mapped(
    tmp_path: Path, inputs: tuple[MergeInput, ...]
) -> None:
    frame, _ = merge_frame(MergeRequest(SECOND, (inputs[1],)), session(tmp_path))
    assert "ProjectionExec" not in frame.execution_plan().display_indent()


@pytest.mark.parametrize("by_engine", [False, True])
def test_a_merge_writes_the_new_schema(
    tmp_path: Path,
    inputs: tuple[MergeInput, ...],
    monkeypatch: pytest.MonkeyPatch,
    by_engine: bool,
) -> None:
    if by_engine:
        monkeypatch.setattr(merged, "write_sorted", None)
        # One row is a complete row group.
        monkeypatch.setattr(FileSettings, "row_group_rows", lambda *_: 1)
    leaves = tree_from_split_points(SECOND, [])
    target = WriteTarget(DataRoot(tmp_path), "t", SECOND, leaves, 7, FileSettings())
    engine = EngineSettings(tmp_path)
    written = merged.write_merge(MergeRequest(SECOND, inputs[:1]), engine, target)
    assert written is not None
    assert written.schema_version == 9
    again = MergeInput(str(tmp_path / written.path), schema_version=9)
    both = [
        pa.Table.from_batches(merge(MergeRequest(SECOND, (each,)), engine)).to_pylist()
        for each in (inputs[0], again)
    ]
    assert both[0] == both[1]


def test_a_file_of_an_unknown_schema_is_not_read(tmp_path: Path) -> None:
    unknown = MergeInput(str(tmp_path / "any.parquet"), schema_version=5)
    with pytest.raises(DataError, match=r"version 5 \(expected one of 1, 9\)"):
        merge_frame(MergeRequest(SECOND, (unknown,)), session(tmp_path))


def test_field_ids_of_files_follow_the_schema(tmp_path: Path) -> None:
    write(tmp_path, SECOND, range(1), "y", 3, 2**40, 0.5)
    kinds = pq.read_schema(tmp_path / "9-0.parquet")
    ids = {each.name: int(each.metadata[b"PARQUET:field_id"]) for each in kinds}
    assert ids == {"key": 1, "time": 2, "new": 6, "a": 4, "b": 3, "other": 7}


@pytest.mark.parametrize("columns", [None, ("b", "key", "other")])
def test_files_of_several_schemas_are_merged_in_memory(
    tmp_path: Path, inputs: tuple[MergeInput, ...], columns: tuple[str, ...] | None
) -> None:
    request = MergeRequest(SECOND, inputs, columns, limit=3)
    in_memory = [
        replace(each, rows=pq.read_table(each.url, columns=needed_names(request, each)))
        for each in inputs
    ]
    expected = pa.Table.from_batches(merge(request, EngineSettings(tmp_path)))
    found = merge_rows(replace(request, inputs=tuple(in_memory)))
    assert sorted(found.to_pylist(), key=repr) == sorted(expected.to_pylist(), key=repr)
