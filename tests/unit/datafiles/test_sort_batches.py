"""The size of the batches that the engine sorts."""

from pathlib import Path

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.scan import ARROW_SUFFIX
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge import sort as sorting
from sleeper.datafiles.merge.sort import UnsortedRows, sort
from sleeper.datafiles.merge.staging import ArrowStaging
from sleeper.datafiles.sources.parquet import count_rows
from sleeper.schema.model import Field, ListType, MapType, PrimitiveType, Schema

SCHEMA = Schema((Field("id", PrimitiveType.LONG),), (), (Field("text", PrimitiveType.STRING),))
MEMORY_BYTES = 128 * 1024**2


def stage(folder: Path, rows: int, text: str) -> UnsortedRows:
    unsorted = UnsortedRows(SCHEMA, folder)
    columns = {"id": list(range(rows, 0, -1)), "text": [text] * rows}
    unsorted.add_batches(pa.table(columns, arrow_schema(SCHEMA)).to_batches(1000))
    return unsorted


@pytest.mark.parametrize(
    ("text", "memory_bytes", "low", "high"),
    [
        ("a", MEMORY_BYTES, 30_000, 33_000),
        ("a" * 500, MEMORY_BYTES, 2000, 2100),
        ("a" * 100_000, MEMORY_BYTES, 1024, 1024),
        ("a", 100 * MEMORY_BYTES, 131_072, 131_072),
    ],
)
def test_batches_have_fewer_rows_if_rows_are_wide(
    tmp_path: Path, text: str, memory_bytes: int, low: int, high: int
) -> None:
    settings = EngineSettings(tmp_path, memory_bytes=memory_bytes)
    assert low <= stage(tmp_path, 100, text).batch_rows(settings) <= high


def test_rows_beyond_the_memory_are_sorted_in_small_batches(tmp_path: Path) -> None:
    unsorted = stage(tmp_path, 100, "a")
    unsorted.rows, unsorted.bytes = 20_000_000, 20_000_000 * 40
    assert unsorted.batch_rows(EngineSettings(tmp_path, memory_bytes=2**30)) == 8192
    assert unsorted.batch_rows(EngineSettings(tmp_path, memory_bytes=2**32)) > 100_000


def test_batches_have_fewer_rows_if_rows_are_wide_only_in_memory(tmp_path: Path) -> None:
    schema = Schema(SCHEMA.row_keys, (), (Field("list", ListType(PrimitiveType.DOUBLE)),))
    lists = [[float(n % 8) for n in range(100)]] * 2000
    table = pa.table({"id": list(range(2000)), "list": lists}, arrow_schema(schema))
    pq.write_table(table, tmp_path / "in.parquet")
    unsorted = UnsortedRows(schema, tmp_path)
    rows, size = count_rows(pq.ParquetFile(tmp_path / "in.parquet"))
    unsorted.add_file(str(tmp_path / "in.parquet"), table.schema, rows, size)
    assert size < 100 * rows
    settings = EngineSettings(tmp_path, memory_bytes=MEMORY_BYTES)
    assert 1200 <= unsorted.batch_rows(settings) <= 1310


def test_sorted_batches_have_that_many_rows(tmp_path: Path) -> None:
    unsorted = stage(tmp_path, 50_000, "a")
    settings = EngineSettings(tmp_path, memory_bytes=MEMORY_BYTES)
    batches = list(sort(unsorted, settings))
    assert max(batch.num_rows for batch in batches) == unsorted.batch_rows(settings)
    ids = [value for batch in batches for value in batch.column("id").to_pylist()]
    assert ids == list(range(1, 50_001))


def test_parquet_files_of_users_may_have_any_name(tmp_path: Path) -> None:
    rows = pa.table({"id": [2, 1], "text": ["b", "a"]}, arrow_schema(SCHEMA))
    pq.write_table(rows, tmp_path / "rows.arrow")
    unsorted = UnsortedRows(SCHEMA, tmp_path)
    unsorted.add_file(str(tmp_path / "rows.arrow"), rows.schema, 2, rows.nbytes)
    (batch,) = sort(unsorted, EngineSettings(tmp_path, memory_bytes=MEMORY_BYTES))
    assert batch.column("id").to_pylist() == [1, 2]


NESTED = Schema(
    SCHEMA.row_keys,
    (),
    (
        Field("text", PrimitiveType.STRING, nullable=True),
        Field("list", ListType(PrimitiveType.STRING), nullable=True),
        Field("map", MapType(PrimitiveType.STRING, PrimitiveType.LONG), nullable=True),
    ),
)


def nested_rows(count: int, text: str = "a") -> pa.Table:
    columns = {
        "id": list(range(count, 0, -1)),
        "text": [None if n % 3 == 0 else text for n in range(count)],
        "list": [None if n % 5 == 0 else [text] * (n % 4) for n in range(count)],
        "map": [None if n % 7 == 0 else {str(m): n for m in range(n % 4)} for n in range(count)],
    }
    return pa.table(columns, KIND)


KIND = arrow_schema(NESTED)


def test_rows_with_lists_and_maps_are_staged_as_arrow_and_sorted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorting, "_STAGED_ROWS_MAX", 1000)
    rows = nested_rows(5000)
    unsorted = UnsortedRows(NESTED, tmp_path)
    unsorted.add_batches(rows.to_batches(300))
    assert [len(files) for files in unsorted.groups()] == [5]
    assert len(list(tmp_path.glob(f"*{ARROW_SUFFIX}"))) == 5
    batches = list(sort(unsorted, EngineSettings(tmp_path, memory_bytes=MEMORY_BYTES)))
    assert pa.Table.from_batches(batches).cast(KIND).equals(rows.sort_by("id"))


@pytest.mark.parametrize(
    ("text", "given", "low", "high"),
    [("a", 10, 8192, 8192), ("a", 40_000, 8192, 8192), ("a" * 10_000, 40_000, 50, 150)],
)
def test_staged_arrow_files_have_batches_of_limited_size(
    tmp_path: Path, text: str, given: int, low: int, high: int
) -> None:
    rows = nested_rows(40_000 if len(text) == 1 else 1000, text)
    staging = ArrowStaging(tmp_path / "rows.arrow", KIND)
    for batch in rows.to_batches(given):
        staging.write_batch(batch)
    staging.close()
    with ipc.open_file(str(tmp_path / "rows.arrow")) as file:
        sizes = [file.get_batch(place).num_rows for place in range(file.num_record_batches)]
        assert file.read_all().equals(rows)
    assert low <= sizes[0] <= high
    assert max(sizes) == sizes[0]
