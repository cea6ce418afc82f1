"""Reads of single pages: what is read, and the files that are left to the engine."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.thrift import read_structure
from sleeper.datafiles.merge.request import MergeInput, MergeRequest
from sleeper.datafiles.merge.rows import merge_rows
from sleeper.datafiles.pages.local_file import LocalFile, open_local
from sleeper.datafiles.pages.reader import PageReader
from sleeper.datafiles.write.file import DataFileWriter, FileSettings
from sleeper.errors import DataError, StateMovedOnError
from sleeper.files import DataFile
from sleeper.partitions.region import Region, key_region
from sleeper.query.request import make_range_region
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.storage.location import DataRoot

SCHEMA = Schema(
    (Field("key", PrimitiveType.STRING),),
    (Field("time", PrimitiveType.LONG),),
    (Field("value", PrimitiveType.STRING, nullable=True),),
)
ROWS = 20_000
PAGE_BYTES = 4096


def keys_of(number: int) -> str:
    return f"k{number:06d}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def file(folder: Path) -> DataFile:
    numbers = range(ROWS)
    columns = [[keys_of(n) for n in numbers], list(numbers), [f"v{n * 7919}" for n in numbers]]
    settings = FileSettings(page_bytes=PAGE_BYTES, row_group_rows_max=10_000)
    writer = DataFileWriter(DataRoot(folder), "file.parquet", SCHEMA, settings)
    writer.write(pa.table(columns, schema=arrow_schema(SCHEMA)).to_batches())
    return writer.finish()


def read(
    folder: Path, file: DataFile, regions: Sequence[Region] | None, **request: object
) -> pa.Table | None:
    each = MergeInput(str(folder / file.path), None if regions is None else tuple(regions))
    reader = PageReader(10**6, 10**9, 1)
    filled = reader.fill(DataRoot(folder), MergeRequest(SCHEMA, (each,), **request), [file])  # type: ignore[arg-type]
    return None if filled is None else merge_rows(filled)


def test_many_local_files_are_left_to_the_engine(folder: Path, file: DataFile) -> None:
    each = MergeInput(str(folder / file.path), (key_region(SCHEMA, (keys_of(1),)),))
    for count, is_filled in ((3, True), (4, False)):
        reader = PageReader(10**6, 10**9, 1, files_max=3)
        request = MergeRequest(SCHEMA, (each,) * count)
        filled = reader.fill(DataRoot(folder), request, [file] * count)
        assert (filled is not None) is is_filled


@pytest.mark.parametrize("error", [IndexError, ValueError, OverflowError, RecursionError])
def test_pages_that_cannot_be_decoded_are_left_to_the_engine(
    folder: Path, file: DataFile, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("sleeper.datafiles.pages.read.decode_rows", fail)
    assert read(folder, file, [key_region(SCHEMA, (keys_of(1),))]) is None


def test_a_key_costs_a_page_of_each_column(
    folder: Path, file: DataFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    original = LocalFile.read

    def record(self: LocalFile, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        reads.extend(end - start for start, end in ranges)
        return original(self, ranges)

    monkeypatch.setattr(LocalFile, "read", record)
    table = read(folder, file, [key_region(SCHEMA, (keys_of(12_345),))])
    assert table is not None
    assert table.to_pylist() == [
        {"key": keys_of(12_345), "time": 12_345, "value": f"v{12_345 * 7919}"}
    ]
    end, *pages = reads
    assert end <= 64 * 1024
    assert len(pages) == len(SCHEMA.fields)
    # A page may be larger than its limit by the values of one batch of the writer.
    assert max(pages) < 4 * PAGE_BYTES


@pytest.mark.parametrize(("low", "high"), [(0, 1), (9_990, 10_010), (19_000, None), (500, 4_000)])
def test_a_range_has_its_rows_in_order(
    folder: Path, file: DataFile, low: int, high: int | None
) -> None:
    region = make_range_region(SCHEMA, keys_of(low), None if high is None else keys_of(high))
    table = read(folder, file, [region])
    assert table is not None
    assert table.column("time").to_pylist() == list(range(low, ROWS if high is None else high))


def test_columns_and_limit(folder: Path, file: DataFile) -> None:
    regions = [key_region(SCHEMA, (keys_of(n),)) for n in (3, 77, 15_000)]
    table = read(folder, file, regions, columns=("value", "time"), limit=2)
    assert table is not None
    assert table.schema.names == ["value", "time"]
    assert table.column("time").to_pylist() == [3, 77]


def test_an_absent_key_has_no_rows(folder: Path, file: DataFile) -> None:
    for key in ("a", "k000100x", "z"):
        table = read(folder, file, [key_region(SCHEMA, (key,))])
        assert table is not None
        assert table.num_rows == 0
        assert table.schema.equals(arrow_schema(SCHEMA))


def test_a_damaged_page_is_left_to_the_engine(folder: Path, file: DataFile) -> None:
    content = bytearray((folder / file.path).read_bytes())
    place = pq.read_metadata(folder / file.path).row_group(0).column(0)
    start = place.data_page_offset
    content[start + 30 : start + 60] = bytes(30)
    (folder / "damaged.parquet").write_bytes(content)
    damaged = replace(file, path="damaged.parquet")
    assert read(folder, damaged, [key_region(SCHEMA, (keys_of(0),))]) is None


def test_bounds_of_pages_that_do_not_ascend_are_left_to_the_engine(
    folder: Path, file: DataFile
) -> None:
    content = bytearray((folder / file.path).read_bytes())
    last = pq.read_metadata(folder / file.path).row_group(1).column(2)
    end = last.data_page_offset + last.total_compressed_size
    third = [match.start() for match in re.finditer(rb"k\d{6}", content[end:])][2]
    content[end + third] = 0xFF
    (folder / "bounds.parquet").write_bytes(content)
    damaged = replace(file, path="bounds.parquet")
    assert read(folder, damaged, [key_region(SCHEMA, (keys_of(5),))]) is None


@pytest.mark.parametrize("cut", [1, 8, 100, 5_000])
def test_a_torn_file_is_left_to_the_engine(folder: Path, file: DataFile, cut: int) -> None:
    content = (folder / file.path).read_bytes()
    (folder / "torn.parquet").write_bytes(content[:-cut])
    torn = replace(file, path="torn.parquet", bytes=file.bytes - cut)
    assert read(folder, torn, [key_region(SCHEMA, (keys_of(0),))]) is None


def test_a_missing_file_moves_the_state_on(folder: Path, file: DataFile) -> None:
    with pytest.raises(StateMovedOnError, match=r"missing.*gone\.parquet"):
        read(folder, replace(file, path="gone.parquet"), [key_region(SCHEMA, ("k",))])


def test_many_rows_are_left_to_the_engine(folder: Path, file: DataFile) -> None:
    assert read(folder, replace(file, rows=10**7), None) is None
    assert read(folder, file, None) is not None


def test_a_torn_structure_is_an_error() -> None:
    whole = bytes([0x15, 0x0A, 0x18, 0x02, 65, 66, 0x11, 0x00])
    assert read_structure(whole) == ({1: 5, 2: b"AB", 3: True}, len(whole))
    assert read_structure(whole, last=2) == ({1: 5, 2: b"AB"}, 6)
    for size in range(len(whole)):
        with pytest.raises(IndexError):
            read_structure(whole[:size])


def repeated(number: int) -> str:
    return f"{number % 10}" * 4_000


def skewed(number: int) -> str:
    return "x" if number < 40_000 else f"{number}" * 100_000


@pytest.mark.parametrize(
    ("value_of", "rows", "large"), [(repeated, 20_000, 0), (skewed, 40_150, 40_000)]
)
def test_rows_that_are_large_when_decoded_are_left_to_the_engine(
    tmp_path: Path, value_of: Callable[[int], str], rows: int, large: int
) -> None:
    writer = DataFileWriter(DataRoot(tmp_path), "file.parquet", SCHEMA, FileSettings())
    for start in range(0, rows, 1_000):
        numbers = range(start, min(start + 1_000, rows))
        columns = [[keys_of(n) for n in numbers], list(numbers), [value_of(n) for n in numbers]]
        writer.write(pa.table(columns, schema=arrow_schema(SCHEMA)).to_batches())
    file = writer.finish()
    assert read(tmp_path, file, [make_range_region(SCHEMA, keys_of(large), None)]) is None
    table = read(tmp_path, file, [key_region(SCHEMA, (keys_of(100),))])
    assert table is not None
    assert table.column("value").to_pylist() == [value_of(100)]


@pytest.mark.parametrize("place", [(-5, 10), (10, 5), (0, 2**70), (2**70, 2**70 + 1), (90, 101)])
def test_a_place_outside_the_file_is_damage(tmp_path: Path, place: tuple[int, int]) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    with open_local(str(path)) as file, pytest.raises(DataError, match="of 100 bytes has no"):
        file.read([place])
