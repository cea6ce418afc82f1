"""The two writers of `DataFileWriter`: the engine for rows in memory, Arrow for more."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.verification import ExpectedFile, verify_file
from sleeper.datafiles.write import file
from sleeper.datafiles.write.file import DataFileWriter, FileSettings
from sleeper.errors import DataError
from sleeper.files import DataFile
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.storage.bucket import Bucket
from sleeper.storage.location import DataRoot
from tests.tables.pages import values_by_page
from tests.unit.datafiles.test_merge_write import SCHEMA, Rows, make_table, rows_strategy

NUMBERS = Schema(
    (Field("key", PrimitiveType.LONG),),
    (),
    (Field("text", PrimitiveType.STRING), Field("kind", PrimitiveType.STRING)),
)
BY_ENGINE, BY_ARROW = "datafusion version", "parquet-cpp-arrow version"


def numbers(rows: int) -> pa.Table:
    columns = [range(rows), [f"{n * 7919 % rows:012d}" for n in range(rows)], ["a"] * rows]
    return pa.table(dict(zip(("key", "text", "kind"), columns, strict=True)), arrow_schema(NUMBERS))


def write(folder: Path, rows: pa.Table, schema: Schema = NUMBERS, batch: int = 7_000) -> DataFile:
    writer = DataFileWriter(DataRoot(folder), "f.parquet", schema, FileSettings())
    for each in rows.to_batches(batch):
        writer.write([each])
    return writer.finish()


def writer_of(path: Path) -> str:
    return " ".join(pq.read_metadata(path).created_by.split()[:2])


@settings(
    max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(rows_strategy)
def test_both_writers_write_equal_files(
    tmp_path_factory: pytest.TempPathFactory, rows: Rows
) -> None:
    files = []
    table = make_table(SCHEMA, rows)
    for rows_min, writer in ((1, BY_ENGINE), (1_000, BY_ARROW)):
        folder = tmp_path_factory.mktemp("writers [a]* ?é%20")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(file, "_ENGINE_ROWS_MIN", rows_min)
            files.append(written := write(folder, table, SCHEMA, batch=3))
        assert writer_of(folder / written.path) == writer
        assert pq.read_table(folder / written.path).equals(table)
        assert verify_file(DataRoot(folder), SCHEMA, ExpectedFile(written)) == []
    facts = [(f.rows, f.smallest_key, f.largest_key, f.sidecars) for f in files]
    assert facts[0] == facts[1]


def test_rows_in_memory_have_aligned_pages_of_the_engine(tmp_path: Path) -> None:
    write(tmp_path, numbers(45_000))
    assert writer_of(tmp_path / "f.parquet") == BY_ENGINE
    pages = [values_by_page(tmp_path / "f.parquet", 0, column) for column in range(3)]
    assert pages[0] == pages[1] == pages[2]
    assert max(pages[0]) <= 1_023
    assert len(pages[0]) >= 20


DOTTED = {
    "differences": (np.arange(20_000), ("DELTA_BINARY_PACKED",), "UNCOMPRESSED"),
    "texts": (
        [f"{n * 7919 % 20_000:09d}" for n in range(20_000)],
        ("DELTA_LENGTH_BYTE_ARRAY",),
        "ZSTD",
    ),
    "few": (["a", "b"] * 10_000, ("PLAIN", "RLE", "RLE_DICTIONARY"), "ZSTD"),
}


@pytest.mark.parametrize("name", DOTTED)
def test_columns_with_a_dot_in_their_name_have_the_chosen_layout(tmp_path: Path, name: str) -> None:
    values, encodings, codec = DOTTED[name]
    kind = PrimitiveType.LONG if name == "differences" else PrimitiveType.STRING
    few = Field("flag", PrimitiveType.BOOLEAN)
    schema = Schema((Field("key", PrimitiveType.LONG),), (), (Field("a.b", kind), few))
    rows = pa.table([np.arange(20_000), values, [True] * 20_000], schema=arrow_schema(schema))
    write(tmp_path, rows, schema)
    assert writer_of(tmp_path / "f.parquet") == BY_ENGINE
    chunk = pq.read_metadata(tmp_path / "f.parquet").row_group(0).column(1)
    assert set(encodings) <= set(chunk.encodings)
    assert chunk.compression == codec
    assert pq.read_table(tmp_path / "f.parquet").equals(rows)


def test_several_columns_with_dots_have_dictionaries_if_their_layouts_differ(
    tmp_path: Path,
) -> None:
    schema = Schema(
        (Field("key", PrimitiveType.LONG),),
        (),
        (Field("a.b", PrimitiveType.LONG), Field("c.d", PrimitiveType.STRING)),
    )
    rows = pa.table([np.arange(20_000), np.arange(20_000), ["a"] * 20_000], arrow_schema(schema))
    write(tmp_path, rows, schema)
    group = pq.read_metadata(tmp_path / "f.parquet").row_group(0)
    assert all("RLE_DICTIONARY" in group.column(place).encodings for place in (1, 2))
    assert pq.read_table(tmp_path / "f.parquet").equals(rows)


def test_few_rows_have_aligned_pages_of_arrow(tmp_path: Path) -> None:
    write(tmp_path, numbers(5_000))
    assert writer_of(tmp_path / "f.parquet") == BY_ARROW
    pages = [values_by_page(tmp_path / "f.parquet", 0, column) for column in range(3)]
    assert pages[0] == pages[1] == pages[2] == [512] * 9 + [392]


def test_rows_beyond_memory_are_written_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "KEPT_BYTES_MAX", 1024**2)
    table = numbers(120_000)
    writer = DataFileWriter(DataRoot(tmp_path), "f.parquet", NUMBERS, FileSettings())
    sizes = []
    for each in table.to_batches(10_000):
        writer.write([each])
        path = tmp_path / "f.parquet"
        sizes.append(path.stat().st_size if path.exists() else 0)
    written = writer.finish()
    assert sizes[0] == 0 < sizes[6] < sizes[11]
    assert writer_of(tmp_path / "f.parquet") == BY_ARROW
    assert max(values_by_page(tmp_path / "f.parquet", 0, 0)) == 4_096
    assert pq.read_table(tmp_path / "f.parquet").equals(table)
    assert verify_file(DataRoot(tmp_path), NUMBERS, ExpectedFile(written)) == []


def test_rows_out_of_order_are_refused(tmp_path: Path) -> None:
    table = numbers(30_000)
    with pytest.raises(DataError, match="out of order"):
        write(tmp_path, pa.concat_tables([table.slice(20_000), table.slice(0, 20_000)]))


def test_abandoned_rows_leave_no_file(tmp_path: Path) -> None:
    writer = DataFileWriter(DataRoot(tmp_path), "f.parquet", NUMBERS, FileSettings())
    writer.write(numbers(30_000).to_batches())
    writer.abandon()
    assert writer.is_closed
    assert not (tmp_path / "f.parquet").exists()


@pytest.mark.slow
def test_objects_are_written_by_the_engine_and_uploaded(
    tmp_path: Path, data_bucket: Bucket
) -> None:
    root, table = DataRoot(data_bucket), numbers(25_000)
    writer = DataFileWriter(root, "f.parquet", NUMBERS, FileSettings(), tmp_path)
    writer.write(table.to_batches())
    written = writer.finish()
    with root.open("f.parquet") as content, pq.ParquetFile(content) as stored:
        assert stored.read().equals(table)
        assert stored.metadata.created_by.startswith(BY_ENGINE)
    assert verify_file(root, NUMBERS, ExpectedFile(written)) == []
    assert list(tmp_path.iterdir()) == []
