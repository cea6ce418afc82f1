"""Reads through extracts return the rows of the files, with few requests."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.exceptions import GenericError

from sleeper.datafiles.pages import reader, remote_file
from sleeper.datafiles.pages.reader import PageReader
from sleeper.datafiles.pages.remote_file import FetchedPages, RemoteFile
from sleeper.datafiles.remote import extracts, file_end
from sleeper.datafiles.write.file import FileSettings
from sleeper.errors import DataError, SleeperError, UnavailableError
from sleeper.partitions.region import Range, Region
from sleeper.processing.model import Processing
from sleeper.processing.text import parse_aggregations
from sleeper.query.engine import QueryEngine
from sleeper.query.request import Query, make_key_regions, make_range_region
from sleeper.query.run import run_query
from sleeper.schema.model import Field, PrimitiveType, Schema, smallest_key_value
from sleeper.storage.bucket import Bucket
from sleeper.storage.location import DataRoot
from tests.examples import examples
from tests.tables import data_table as data_tables
from tests.tables.data_table import DataTable, list_rows

KINDS = {
    PrimitiveType.INT: st.integers(-9, 9),
    PrimitiveType.LONG: st.integers(-9, 9),
    PrimitiveType.STRING: st.text("aé😀", max_size=2),
    PrimitiveType.BYTE_ARRAY: st.binary(max_size=1),
}
LONG = Schema((Field("id", PrimitiveType.LONG),), (), (Field("v", PrimitiveType.LONG),))


class DistantRoot(DataRoot):
    """A folder that is read like a bucket and counts requests."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.requests: list[tuple[str, int, int]] = []

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        return (Bucket("distant"),)

    def read(self, path: str) -> bytes:
        self.requests.append((path, 0, 0))
        return super().read(path)

    def count_requests(self) -> int:
        """Returns the requests since the last call."""
        count = len(self.requests)
        self.requests.clear()
        return count


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DataTable]:
    """A table with row groups of a hundred rows, whose `root` counts requests."""
    data_table = DataTable(tmp_path, LONG, file_settings=FileSettings(row_group_rows_max=100))
    data_table.root = DistantRoot(tmp_path / "data")
    ranged = obstore.get_range

    def count_and_read(store: Any, path: str, *, start: int, end: int) -> Any:
        data_table.root.requests.append((path, start, end))
        return ranged(store, path, start=start, end=end)

    monkeypatch.setattr(file_end.obstore, "get_range", count_and_read)
    yield data_table
    assert not list(tmp_path.rglob("extract-*"))


def make_engine(folder: Path, reads_pages: bool = False) -> QueryEngine:
    """Makes an engine that reads S3 files by extracts, or single pages."""
    return data_tables.make_engine(folder, reads_pages=reads_pages)


def requests(table: DataTable) -> int:
    assert isinstance(table.root, DistantRoot)
    return table.root.count_requests()


def ids(table: DataTable, engine: QueryEngine, query: Query) -> list[int]:
    return [row[0] for row in list_rows(run_query(query, table.query_table, engine).read_all())]


def keys(*values: int) -> Query:
    return Query(make_key_regions(LONG, [(n,) for n in values]))


@pytest.mark.parametrize("reads_pages", [False, True])
def test_warm_lookup_takes_one_request_and_an_absent_key_none(
    table: DataTable, tmp_path: Path, reads_pages: bool
) -> None:
    for first in range(8):
        table.add_rows([(n, n) for n in range(first, 16_000, 16)])
    engine = make_engine(tmp_path, reads_pages)
    assert ids(table, engine, keys(16)) == [16]
    # The filters of all, the end of one file, and one row group or its pages.
    assert requests(table) == 8 + 1 + 1
    ids(table, engine, keys(*range(8)))
    requests(table)
    assert ids(table, engine, keys(8003)) == [8003]
    assert requests(table) == 1
    assert ids(table, engine, keys(8008, 8013)) == []
    assert requests(table) == 0


def test_leaves_are_prefetched_unless_there_is_a_limit(
    table: DataTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves = DataTable(tmp_path / "split", LONG, [1000, 2000, 3000, 4000, 5000, 6000, 7000])
    leaves.root = table.root
    for leaf in leaves.leaves():
        leaves.add_rows([(n, n) for n in range(8000)], leaf.id)
    engine = make_engine(tmp_path)
    requested_keys = keys(*range(500, 8000, 1000))
    assert ids(leaves, engine, requested_keys) == [*range(500, 8000, 1000)]
    requests(table)
    result = run_query(requested_keys, leaves.query_table, engine)
    next(result)
    result.close()
    # What was begun is finished and deleted.
    assert 1 <= requests(table) <= 6
    assert not list(tmp_path.rglob("extract-*"))
    assert ids(leaves, engine, Query(requested_keys.regions, limit=2)) == [500, 1500]
    assert requests(table) == 2
    monkeypatch.setattr(extracts, "_EXTRACTED_BYTES_MAX", 10_000)
    assert ids(leaves, engine, requested_keys) == [*range(500, 8000, 1000)]


def test_keys_of_several_leaves_are_read_from_pages(table: DataTable, tmp_path: Path) -> None:
    leaves = DataTable(tmp_path / "split", LONG, [1000, 2000, 3000, 4000, 5000, 6000, 7000])
    leaves.root = table.root
    for leaf in leaves.leaves():
        leaves.add_rows([(n, n) for n in range(8000)], leaf.id)
    engine = make_engine(tmp_path, reads_pages=True)
    numbers = [*range(500, 8000, 1000)]
    assert ids(leaves, engine, keys(*numbers)) == numbers
    requests(table)
    assert ids(leaves, engine, keys(*numbers)) == numbers
    assert requests(table) == len(numbers)
    with run_query(keys(*numbers), leaves.query_table, engine) as result:
        next(result)
        assert not list(tmp_path.rglob("extract-*"))
    assert ids(leaves, engine, Query(keys(*numbers).regions, limit=2)) == [500, 1500]


def test_leaves_after_one_for_the_engine_are_fetched_by_row_groups(
    table: DataTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves = DataTable(tmp_path / "split", LONG, [1000, 2000, 3000])
    leaves.root = table.root
    leaves.add_rows([(n, n) for n in range(4000)])
    filled, original = [], PageReader.fill

    def fill(self: PageReader, *arguments: Any) -> Any:
        filled.append(1)
        return None if len(filled) == 3 else original(self, *arguments)

    monkeypatch.setattr(PageReader, "fill", fill)
    engine = make_engine(tmp_path, reads_pages=True)
    numbers = [*range(500, 4000, 1000)]
    result = run_query(Query(keys(*numbers).regions, limit=3), leaves.query_table, engine)
    assert [row[0] for row in list_rows(result.read_all())] == numbers[:3]
    assert len(filled) == 3
    filled.clear()
    assert ids(leaves, engine, keys(*numbers)) == numbers


def test_pages_of_many_keys_are_few_requests_in_parallel(
    table: DataTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in range(3):
        table.add_rows([(n, n) for n in range(first, 15_000, 3)])
    engine = make_engine(tmp_path, reads_pages=True)
    numbers = [*range(10, 15_000, 700)]
    assert ids(table, engine, keys(*numbers)) == numbers
    requests(table)
    assert ids(table, engine, keys(*numbers)) == numbers
    assert requests(table) == 3
    monkeypatch.setattr(RemoteFile, "gap_bytes_max", 0)
    assert ids(table, engine, keys(*numbers)) == numbers
    # The columns of a row group are adjacent.
    assert requests(table) == len(numbers)
    for limit in ("_BYTES_MAX", "_FETCHED_BYTES_MAX"):
        with monkeypatch.context() as patch:
            patch.setattr(reader, limit, 1)
            engine = make_engine(tmp_path, reads_pages=True)
            assert ids(table, engine, keys(*numbers)) == numbers


def test_only_the_wanted_pages_of_a_request_are_kept(table: DataTable) -> None:
    table.add_rows([(n, n) for n in range(5_000)])
    (file,) = table.files()
    content = (Path(table.root.url_of(file.path))).read_bytes()
    source = RemoteFile(
        table.root, file.path, file.bytes, lambda function, each: map(function, each)
    )
    pages = [(100, 50), (150, 20), (400, 30), (1000, 10)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RemoteFile, "gap_bytes_max", 300)
        requests(table)
        kept = FetchedPages(source, pages)
        # The first two pages are adjacent, the third is near them.
        assert requests(table) == 2
        assert sorted(map(len, kept._contents)) == [10, 30, 70]
        patch.setattr(remote_file, "_REQUEST_BYTES_MAX", 60)
        cut = FetchedPages(source, pages)
        assert requests(table) == 4
    for start, end in [(100, 150), (100, 170), (110, 160), (150, 170), (400, 430), (1000, 1010)]:
        assert kept.read([(start, end)]) == cut.read([(start, end)]) == [content[start:end]]


def test_adjacent_row_groups_are_one_request(table: DataTable, tmp_path: Path) -> None:
    table.add_rows([(n, n) for n in range(5000)])
    engine = make_engine(tmp_path)
    ids(table, engine, keys(1))
    requests(table)
    query = Query((make_range_region(LONG, 1234, 2345),))
    assert ids(table, engine, query) == [*range(1234, 2345)]
    assert requests(table) == 1
    every_tenth = keys(*range(0, 5000, 10))
    assert ids(table, engine, every_tenth) == [*range(0, 5000, 10)]
    assert requests(table) == 1


def test_distant_row_groups_are_separate_requests(
    table: DataTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extracts, "_GAP_BYTES_MAX", 1000)
    table.add_rows([(n, n) for n in range(5000)])
    engine = make_engine(tmp_path)
    ids(table, engine, keys(1))
    requests(table)
    assert ids(table, engine, keys(50, 51, 2500, 2501, 4999)) == [50, 51, 2500, 2501, 4999]
    assert requests(table) == 3


def test_request_size_is_bounded(
    table: DataTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extracts, "_REQUEST_BYTES_MAX", 5000)
    file = table.add_rows([(n, n) for n in range(5000)])
    assert file is not None
    engine = make_engine(tmp_path)
    assert ids(table, engine, Query((make_range_region(LONG, 0, 4999),))) == [*range(4999)]
    assert isinstance(table.root, DistantRoot)
    sizes = [end - start for path, start, end in table.root.requests if path == file.path][1:]
    assert max(sizes) <= 5000 < sum(sizes)


@pytest.mark.parametrize("end_bytes", [1, 9, 300, 5000])
def test_footer_longer_than_the_estimate_is_read_whole(
    table: DataTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end_bytes: int
) -> None:
    monkeypatch.setattr(file_end, "_END_BYTES_MIN", max(end_bytes, 8))
    monkeypatch.setattr(file_end, "_END_SHARE", 10**9)
    table.add_rows([(n, n) for n in range(5000)])
    assert ids(table, make_engine(tmp_path), keys(77, 4001)) == [77, 4001]


def test_absent_key_is_not_found_without_a_filter(
    table: DataTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.file_settings = FileSettings(row_group_rows_max=100, filter_bits_per_key=0)
    table.add_rows([(n, n) for n in range(0, 10_000, 10)])
    engine = make_engine(tmp_path)
    assert ids(table, engine, keys(995, 1995)) == []
    assert ids(table, engine, keys(990, 995, 1000)) == [990, 1000]


def test_large_reads_bypass_extracts(
    table: DataTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extracts, "_EXTRACTED_BYTES_MAX", 100)
    table.add_rows([(n, n) for n in range(5000)])
    engine = make_engine(tmp_path)
    assert ids(table, engine, keys(5)) == [5]
    # Filter and end, but no row group.
    assert requests(table) == 2


def test_footers_beyond_the_cache_are_read_again(table: DataTable, tmp_path: Path) -> None:
    table.add_rows([(n, n) for n in range(500)])
    engine = make_engine(tmp_path)
    small = extracts.Extractor(tmp_path / "spill", 10)
    engine.extractor = small
    for _ in range(2):
        requests(table)
        assert ids(table, engine, keys(5)) == [5]
    assert requests(table) == 2


def test_full_disk_bypasses_extracts(
    table: DataTable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    table.add_rows([(n, n) for n in range(5000)])
    engine = make_engine(tmp_path)
    ids(table, engine, keys(1))
    original = os.pwrite

    def full(descriptor: int, content: memoryview, offset: int) -> int:
        if offset:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(descriptor, content, offset)

    monkeypatch.setattr(extracts.os, "pwrite", full)
    assert ids(table, engine, keys(5, 2500)) == [5, 2500]
    assert "no extracts made" in caplog.text
    assert not list(tmp_path.rglob("extract-*"))


@pytest.mark.parametrize("reads_pages", [False, True])
@pytest.mark.parametrize("damage", ["cut", "other", "longer footer"])
def test_truncated_file_is_a_data_error_with_its_name(
    table: DataTable, tmp_path: Path, damage: str, reads_pages: bool
) -> None:
    file = table.add_rows([(n, n) for n in range(500)])
    assert file is not None
    path = Path(table.root.url_of(file.path))
    content = path.read_bytes()
    length = b"\xff\xff\xff\x00PAR1"
    torn = {
        "cut": content[:-20],
        "other": b"x" * len(content),
        "longer footer": content[:-8] + length,
    }
    path.write_bytes(torn[damage])
    with pytest.raises(DataError, match=file.path):
        ids(table, make_engine(tmp_path, reads_pages), keys(5))


@pytest.mark.parametrize("reads_pages", [False, True])
def test_missing_file_restarts_the_query_and_is_then_named(
    table: DataTable, tmp_path: Path, reads_pages: bool
) -> None:
    file = table.add_rows([(n, n) for n in range(500)])
    assert file is not None
    Path(table.root.url_of(file.path)).unlink()
    with pytest.raises(SleeperError, match=file.path):
        ids(table, make_engine(tmp_path, reads_pages), keys(5))


@pytest.mark.parametrize("numbers", [(5,), (5, 1500, 2500)], ids=["one leaf", "three leaves"])
@pytest.mark.parametrize("damage", ["cut", "zeros", "missing"])
def test_a_file_damaged_after_its_index_was_read_is_named(
    table: DataTable, tmp_path: Path, damage: str, numbers: tuple[int, ...]
) -> None:
    leaves = DataTable(tmp_path / "split", LONG, [1000, 2000])
    leaves.root = table.root
    file = leaves.add_rows([(n, n) for n in range(3000)])
    assert file is not None
    engine = make_engine(tmp_path, reads_pages=True)
    assert ids(leaves, engine, keys(*numbers)) == [*numbers]
    path = Path(table.root.url_of(file.path))
    size = path.stat().st_size
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(b"PAR1" + bytes(size - 4 if damage == "zeros" else 100))
    with pytest.raises(SleeperError, match=file.path):
        ids(leaves, engine, keys(*numbers))


@pytest.mark.parametrize("numbers", [(5,), (5, 1500, 2500)], ids=["one leaf", "three leaves"])
def test_a_lookup_fails_while_s3_is_unavailable_and_succeeds_later(
    table: DataTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, ...]
) -> None:
    leaves = DataTable(tmp_path / "split", LONG, [1000, 2000])
    leaves.root = table.root
    leaves.add_rows([(n, n) for n in range(3000)])
    engine = make_engine(tmp_path, reads_pages=True)
    read = file_end.obstore.get_range
    for allowed in range(6):
        reads = iter(range(allowed))

        def fail_late(*arguments: Any, left: Iterator[int] = reads, **more: Any) -> Any:
            if next(left, None) is None:
                raise GenericError("the connection was reset")
            return read(*arguments, **more)

        monkeypatch.setattr(file_end.obstore, "get_range", fail_late)
        with contextlib.suppress(UnavailableError):
            assert ids(leaves, engine, keys(*numbers)) == [*numbers]
            assert allowed > 0
    monkeypatch.setattr(file_end.obstore, "get_range", read)
    assert ids(leaves, engine, keys(*numbers)) == [*numbers]


def test_the_first_lookup_of_a_file_takes_three_requests(table: DataTable, tmp_path: Path) -> None:
    table.add_rows([(n, n) for n in range(5_000)])
    assert ids(table, make_engine(tmp_path, reads_pages=True), keys(16)) == [16]
    # The filter, the end, and the pages.
    assert requests(table) == 3


@settings(max_examples=examples(30), deadline=None)
@given(st.data())
def test_random_queries_equal_reads_of_whole_files(data: st.DataObject) -> None:
    """Present, absent and repeated keys, ranges, sort keys, several fields, aggregations."""
    kinds = data.draw(st.lists(st.sampled_from(sorted(KINDS, key=str)), min_size=1, max_size=2))
    row_keys = tuple(Field(f"k{i}", kind) for i, kind in enumerate(kinds))
    sort_keys = data.draw(st.sampled_from([(), (Field("s", PrimitiveType.LONG),)]))
    schema = Schema(row_keys, sort_keys, (Field("v", PrimitiveType.LONG),))
    row = st.tuples(*(KINDS[f.type] for f in schema.fields))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        bits = data.draw(st.sampled_from([0, 14]))
        file_settings = FileSettings(row_group_rows_max=2, filter_bits_per_key=bits)
        gap = data.draw(st.sampled_from([0, 400, 10**6]))
        patch.setattr(extracts, "_GAP_BYTES_MAX", gap)
        patch.setattr(RemoteFile, "gap_bytes_max", gap)
        patch.setattr(remote_file, "_REQUEST_BYTES_MAX", data.draw(st.sampled_from([50, 10**6])))
        values = KINDS[row_keys[0].type]
        cuts = data.draw(st.lists(values, max_size=2, unique=True).map(sorted))
        cuts = [cut for cut in cuts if cut != smallest_key_value(row_keys[0])]
        table = DataTable(Path(folder), schema, cuts, file_settings=file_settings)
        for rows in data.draw(st.lists(st.lists(row, min_size=1, max_size=20), max_size=3)):
            table.add_rows(rows)
        query = data.draw(queries(schema))
        near = run_query(query, table.query_table, make_engine(Path(folder))).read_all()
        table.root = DistantRoot(Path(folder) / "data")
        engine = make_engine(Path(folder), data.draw(st.booleans()))
        far = run_query(query, table.query_table, engine).read_all()
        assert far.schema == near.schema
        assert sorted(list_rows(far), key=repr) == sorted(list_rows(near), key=repr)
        count = len(schema.keys)
        if query.columns is None:
            assert [r[:count] for r in list_rows(far)] == [r[:count] for r in list_rows(near)]


@st.composite
def queries(draw: st.DrawFn, schema: Schema) -> Query:
    field_values = [KINDS[f.type] for f in schema.row_keys]
    requested_keys = draw(st.lists(st.tuples(*field_values), max_size=6, unique=True))
    regions = [*make_key_regions(schema, requested_keys)]
    if draw(st.booleans()) or not regions:
        regions.append(Region(tuple(draw(ranges(kind)) for kind in field_values)))
    query = Query(tuple(regions), columns=draw(st.sampled_from([None, ("v",)])))
    if draw(st.booleans()):
        aggregated = Processing((), parse_aggregations("sum(v)"))
        query = Query(query.regions, query.columns, processing=aggregated)
    return query


def ranges(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Range]:
    both = st.tuples(values, values).filter(lambda e: e[0] != e[1])
    return st.one_of(
        both.map(lambda ends: Range(min(ends), max(ends))), values.map(lambda v: Range(v, None))
    )
