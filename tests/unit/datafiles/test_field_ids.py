"""Every data file has Parquet field ids, other readers see them, and results have none."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.datafiles.arrow import arrow_schema, file_schema
from sleeper.datafiles.engine.session import open_session
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge.frame import merge_frame
from sleeper.datafiles.merge.plan import merge, merge_plan
from sleeper.datafiles.merge.request import MergeInput, MergeRequest
from sleeper.datafiles.write import merged
from sleeper.datafiles.write.file import DataFileWriter, FileSettings
from sleeper.datafiles.write.merged import KeyTap, with_field_ids, write_merge
from sleeper.datafiles.write.partitioned import FileStrategy, WriteTarget, write_sorted
from sleeper.partitions.partition import tree_from_split_points
from sleeper.schema.model import (
    DecimalType,
    Field,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    schema_to_json,
)
from sleeper.storage.location import DataRoot
from tests.older_formats import write_file_of_fields, write_file_of_release_0_2

P = PrimitiveType
SCHEMA = Schema(
    (Field("z key", P.STRING), Field("a.b", P.INT)),
    (Field("t", P.LONG),),
    (
        Field("v", P.BYTE_ARRAY, nullable=True),
        Field("tags", ListType(P.STRING), nullable=True),
        Field("counts", MapType(P.STRING, P.LONG)),
        Field("price", DecimalType(9, 2), nullable=True),
        # The same type with other ids.
        Field("sums", MapType(P.STRING, P.LONG)),
    ),
)
IDS = {
    ("z key",): 1,
    ("a.b",): 2,
    ("t",): 3,
    ("v",): 4,
    ("tags",): 5,
    ("tags", "tags"): 1_000_010,
    ("counts",): 6,
    ("counts", "key"): 1_000_012,
    ("counts", "value"): 1_000_013,
    ("price",): 7,
    ("sums",): 8,
    ("sums", "key"): 1_000_016,
    ("sums", "value"): 1_000_017,
}
START_MS = 1_700_000_000_000


def make_rows(*keys: str) -> pa.Table:
    rows = [(k, 1, 1, b"value", ["x"], [("n", 1)], None, [("m", 2)]) for k in keys]
    kinds = arrow_schema(SCHEMA)
    columns = zip(*rows, strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, kinds, strict=True)]
    return pa.Table.from_arrays(arrays, schema=kinds)


def write_file(folder: Path, name: str, *keys: str) -> Path:
    writer = DataFileWriter(DataRoot(folder), name, SCHEMA, FileSettings())
    if keys:
        writer.write(make_rows(*keys).to_batches())
    writer.finish()
    return folder / name


def target(folder: Path) -> WriteTarget:
    leaves = tree_from_split_points(SCHEMA, [])
    return WriteTarget(DataRoot(folder), "t", SCHEMA, leaves, START_MS, FileSettings())


def engine(folder: Path, **changes: Any) -> EngineSettings:
    (folder / "spill").mkdir(exist_ok=True)
    return EngineSettings(folder / "spill", **changes)


def ids_by_pyarrow(path: Path) -> dict[tuple[str, ...], int]:
    """The ids by the names of fields, and of a field and its elements."""
    return dict(stored_ids(pq.read_schema(path)))


def stored_ids(fields: Iterable[pa.Field]) -> Iterator[tuple[tuple[str, ...], int]]:
    for field in fields:
        if field.metadata:
            yield (field.name,), int(field.metadata[b"PARQUET:field_id"])
        kind = field.type
        inner = [kind.value_field] if pa.types.is_list(kind) else []
        inner = [kind.key_field, kind.item_field] if pa.types.is_map(kind) else inner
        for path, id_ in stored_ids(inner):
            yield (field.name, *path), id_


def ids_by_duckdb(path: Path) -> list[tuple[str, int]]:
    statement = "SELECT name, field_id FROM parquet_schema(?) WHERE field_id IS NOT NULL"
    return duckdb.execute(statement, [str(path)]).fetchall()


@pytest.fixture
def old_file(tmp_path: Path) -> Path:
    """A data file of release 0.2, without field ids."""
    path = tmp_path / "old.parquet"
    write_file_of_release_0_2(path, make_rows("a", "c"), SCHEMA)
    assert ids_by_pyarrow(path) == {}
    return path


@pytest.fixture
def file_of_fields(tmp_path: Path) -> Path:
    """A data file with ids of fields only, whose elements of lists are called `element`."""
    path = tmp_path / "fields.parquet"
    write_file_of_fields(path, make_rows("a", "c"), SCHEMA)
    assert ids_by_pyarrow(path) == {names: id_ for names, id_ in IDS.items() if len(names) == 1}
    return path


def write_by_streaming(folder: Path, strategy: FileStrategy) -> Path:
    rows = iter(make_rows("a", "b").to_batches())
    (written,) = write_sorted(rows, target(folder), strategy)
    return folder / written.file.path


def write_by_merge(folder: Path) -> Path:
    inputs = [write_file(folder, f"{name}.parquet", name) for name in ("a", "b")]
    request = MergeRequest(SCHEMA, tuple(MergeInput(str(path)) for path in inputs))
    written = write_merge(request, engine(folder), target(folder))
    assert written is not None
    return folder / written.path


def write_by_engine(folder: Path) -> Path:
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(merged, "write_sorted", None)
        # One row is a complete row group.
        patches.setattr(FileSettings, "row_group_rows", lambda *_: 1)
        return write_by_merge(folder)


WRITERS: dict[str, Callable[[Path], Path]] = {
    "file per leaf": lambda f: write_by_streaming(f, FileStrategy.ONE_FILE_PER_LEAF),
    "reference per leaf": lambda f: write_by_streaming(f, FileStrategy.ONE_REFERENCE_PER_LEAF),
    "small merge": write_by_merge,
    "engine": write_by_engine,
    "no rows": lambda f: write_file(f, "empty.parquet"),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_every_writer_writes_the_ids_in_field_order(tmp_path: Path, writer: str) -> None:
    path = WRITERS[writer](tmp_path)
    assert ids_by_pyarrow(path) == IDS
    assert ids_by_duckdb(path) == [(names[-1], id_) for names, id_ in IDS.items()]
    # Nothing but the ids differs from the table's schema.
    assert pq.read_schema(path) == arrow_schema(SCHEMA)


@pytest.mark.parametrize("writer", ["file per leaf", "small merge", "engine"])
def test_other_readers_return_the_rows(tmp_path: Path, writer: str) -> None:
    path = str(WRITERS[writer](tmp_path))
    assert pq.read_table(path).equals(make_rows("a", "b"))
    result = duckdb.execute('SELECT "z key", tags, counts FROM read_parquet(?)', [path]).fetchall()
    assert result == [(key, ["x"], {"n": 1}) for key in ("a", "b")]


@pytest.mark.parametrize("writer", WRITERS)
def test_java_clients_find_the_elements_of_lists_by_the_name_of_the_field(
    tmp_path: Path, writer: str
) -> None:
    assert "tags.list.tags" in java_columns(WRITERS[writer](tmp_path))


def test_java_clients_find_no_lists_in_files_of_earlier_versions(file_of_fields: Path) -> None:
    assert not [path for path in java_columns(file_of_fields) if path.startswith("tags")]


def java_columns(path: Path) -> list[str]:
    """The columns that gchq/sleeper's reader finds: it projects by the names of its schema.

    Its converter names the elements of a list after the field, and Parquet's Java reader takes a
    column of another path as missing.
    """
    wanted = set()
    for field in SCHEMA.fields:
        inner = {ListType: [f"list.{field.name}"], MapType: ["key_value.key", "key_value.value"]}
        below = inner.get(type(field.type), [])
        wanted |= {f"{field.name}.{each}" for each in below} or {field.name}
    with pq.ParquetFile(path) as stored:
        columns = [stored.schema.column(i).path for i in range(len(stored.schema))]
    return [each for each in columns if each in wanted]


@pytest.mark.parametrize("files_max", [64, 2])
def test_files_with_and_without_ids_merge_without_ids(
    tmp_path: Path, old_file: Path, file_of_fields: Path, files_max: int
) -> None:
    new = write_file(tmp_path, "new.parquet", "b", "d")
    inputs = tuple(MergeInput(str(path)) for path in (old_file, new, file_of_fields))
    batches = list(merge(MergeRequest(SCHEMA, inputs), engine(tmp_path, merge_files_max=files_max)))
    rows = pa.Table.from_batches(batches)
    assert rows.cast(arrow_schema(SCHEMA)) == make_rows("a", "a", "b", "c", "c", "d")
    assert dict(stored_ids(rows.schema)) == {}


def test_engine_writes_ids_for_inputs_without(
    tmp_path: Path, old_file: Path, file_of_fields: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = write_file(tmp_path, "new.parquet", "b")
    files = (old_file, new, file_of_fields)
    request = MergeRequest(SCHEMA, tuple(MergeInput(str(path)) for path in files))
    monkeypatch.setattr(merged, "write_sorted", None)
    monkeypatch.setattr(FileSettings, "row_group_rows", lambda *_: 1)
    written = write_merge(request, engine(tmp_path), target(tmp_path))
    assert written is not None
    assert ids_by_pyarrow(tmp_path / written.path) == IDS
    assert pq.read_table(tmp_path / written.path).equals(make_rows("a", "a", "b", "c", "c"))


@pytest.mark.parametrize("count", [1, 2, 9])
def test_ids_add_no_sort_to_the_plans(tmp_path: Path, count: int) -> None:
    inputs = (MergeInput(str(write_file(tmp_path, "a.parquet", "a", "b"))),) * count
    request = MergeRequest(SCHEMA, inputs)
    frame, _ = merge_frame(request, open_session(engine(tmp_path)))
    assert "SortExec" not in str(frame.execution_plan())
    with merge_plan(request, engine(tmp_path)) as plan:
        tap = KeyTap(SCHEMA, FileSettings().key_facts(SCHEMA), lambda _: None)
        written = with_field_ids(tap.above(plan.frame), SCHEMA)
        assert written.schema() == file_schema(SCHEMA)
        steps = written.execution_plan().display_indent().splitlines()
    assert steps[0].startswith("ProjectionExec")
    assert steps[1].strip().startswith("FilterExec: tap(")
    assert "SortExec" not in "".join(steps)
    assert ("SortPreservingMergeExec" in steps[2]) == (count > 1)


def test_results_and_repeated_ingests_of_data_files_have_no_ids(
    tmp_path: Path, old_file: Path, file_of_fields: Path
) -> None:
    new = write_file(tmp_path, "new.parquet", "b", "d")
    with sleeper.create_instance(tmp_path / "instance") as instance:
        table = instance.create_table("t", schema_to_json(SCHEMA))
        for sources in ([new, old_file], [file_of_fields, new], [new]):
            table.ingest([str(path) for path in sources])
        table.ingest(pq.read_table(new))
        paths = [*(tmp_path / "instance").rglob("data/**/*.parquet")]
        assert [ids_by_pyarrow(path) for path in paths] == [IDS] * 4
        assert table.query(keys=[["b", 1]]).to_arrow()["tags"].to_pylist() == [["x"]] * 4
        results = [
            table.query(),
            table.query(keys=[["b", 1]]),
            table.query(columns=["v", "z key"]),
            instance.sql("SELECT * FROM t"),
            instance.sql('SELECT "z key", count(*) AS n FROM t GROUP BY "z key"'),
        ]
        tables = [result.to_arrow() for result in results]
    assert [each.num_rows for each in tables] == [12, 4, 12, 12, 4]
    for each in tables:
        assert dict(stored_ids(each.schema)) == {}
