"""Lookups skip exactly the files whose key filter excludes the key."""

import logging
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.datafiles.sidecars import key_filter_builder
from sleeper.datafiles.sidecars.key_filter import KeyFilter, hashed_keys
from sleeper.datafiles.sidecars.key_filter_builder import KeyFilterBuilder
from sleeper.datafiles.sidecars.key_order import encode_key
from sleeper.datafiles.write.file import FileSettings
from sleeper.files import FILTER_SUFFIX, DataFile
from sleeper.partitions.region import Range, Region, key_region
from sleeper.query.engine import QueryEngine
from sleeper.query.key_filters import KeyFilterCache, prune_plan
from sleeper.query.leaf_plan import FileScan, LeafPlan
from sleeper.query.plan import QueryPlan
from sleeper.query.request import Query, make_key_regions, make_range_region
from sleeper.query.run import run_query
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.storage.location import DataRoot
from tests.tables.data_table import DataTable, list_rows, make_engine

SCHEMA = Schema((Field("id", PrimitiveType.LONG),), (), (Field("v", PrimitiveType.STRING),))
TWO = Schema((Field("a", PrimitiveType.STRING), Field("b", PrimitiveType.INT)))
LARGEST = 2**63 - 1


@pytest.fixture
def table(tmp_path: Path) -> DataTable:
    return DataTable(tmp_path, SCHEMA)


def make_query(*ids: int) -> Query:
    return Query(make_key_regions(SCHEMA, [(i,) for i in ids]))


def every_third(table: DataTable, first: int) -> DataFile:
    file = table.add_rows([(n, f"v{n}") for n in range(first, 1500, 3)])
    assert file is not None
    return file


def ids(query: Query, table: DataTable, engine: QueryEngine) -> list[int]:
    return [row[0] for row in list_rows(run_query(query, table.query_table, engine).read_all())]


def make_unreadable(table: DataTable, file: DataFile) -> None:
    Path(table.root.url_of(file.path)).write_bytes(b"not a parquet file")


def test_files_whose_filter_excludes_the_key_are_not_opened(table: DataTable, tmp_path: Path):
    every_third(table, 0)
    for first in (1, 2):
        make_unreadable(table, every_third(table, first))
    engine = make_engine(tmp_path)
    assert ids(make_query(300), table, engine) == [300]
    assert ids(make_query(*range(0, 1500, 300)), table, engine) == [*range(0, 1500, 300)]


def test_absent_key_opens_no_file(table: DataTable, tmp_path: Path):
    make_unreadable(table, every_third(table, 0))
    engine = make_engine(tmp_path)
    result = run_query(make_query(301, 1000), table.query_table, engine).read_all()
    assert (result.num_rows, result.column_names) == (0, ["id", "v"])


def test_each_file_is_read_only_for_keys_that_it_may_contain():
    file_keys = {"f0": {0, 10, 20}, "f1": {10, 500}, "f2": {77}}
    filters = {path: make_filter(keys) for path, keys in file_keys.items()}
    regions = tuple(key_region(SCHEMA, (k,)) for k in range(0, 600, 10))
    scans = tuple(FileScan(make_file(path), regions) for path in file_keys)
    plan = QueryPlan(SCHEMA, 7, (LeafPlan(("a",), scans), LeafPlan(("b",), scans[2:])))
    result = prune_plan(plan, lambda file: filters[file.path])
    assert (result.schema, result.version) == (SCHEMA, 7)
    (leaf,) = result.leaves
    assert leaf.leaf_ids == ("a",)
    requested = {s.file.path: [r.ranges[0].min for r in s.regions or ()] for s in leaf.scans}
    assert requested == {"f0": [0, 10, 20], "f1": [10, 500]}


def test_ranges_are_kept_and_need_no_filter():
    key, wide = key_region(SCHEMA, (5,)), make_range_region(SCHEMA, 100, 200)
    both = FileScan(make_file("f"), (key, wide))
    plan = QueryPlan(SCHEMA, 1, (LeafPlan(("a",), (both,)),))
    (leaf,) = prune_plan(plan, lambda file: make_filter({6})).leaves
    assert leaf.scans == (FileScan(both.file, (wide,)),)

    def fail_to_load(file: DataFile) -> KeyFilter:
        raise AssertionError("no key is asked for")

    for regions in (None, (wide,)):
        only = QueryPlan(SCHEMA, 1, (LeafPlan(("a",), (FileScan(both.file, regions),)),))
        assert prune_plan(only, fail_to_load) == only


def test_largest_value_of_a_type_is_a_key():
    region = key_region(SCHEMA, (LARGEST,))
    assert region.ranges == (Range(LARGEST, None),)
    plan = QueryPlan(SCHEMA, 1, (LeafPlan(("a",), (FileScan(make_file("f"), (region,)),)),))
    assert prune_plan(plan, lambda file: make_filter({5})).leaves == ()
    assert prune_plan(plan, lambda file: make_filter({LARGEST})) == plan


def test_partial_key_is_a_range():
    region = Region((Range("x", "x\0"), Range(-(2**31), None)))
    plan = QueryPlan(TWO, 1, (LeafPlan(("a",), (FileScan(make_file("f"), (region,)),)),))
    assert prune_plan(plan, lambda file: make_filter({5})) == plan


def test_invalid_unicode_is_not_pruned():
    schema = Schema((Field("a", PrimitiveType.STRING),))
    scan = FileScan(make_file("f"), (key_region(schema, ("\ud800",)),))
    plan = QueryPlan(schema, 1, (LeafPlan(("a",), (scan,)),))
    assert prune_plan(plan, lambda file: make_filter({5})) == plan


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_pruning_keeps_the_keys_of_a_file(data: st.DataObject):
    keys = st.tuples(st.text("ab", max_size=3), st.integers(-3, 3))
    file_keys = {path: data.draw(st.sets(keys, max_size=8)) for path in ("f0", "f1")}
    requested_keys = data.draw(st.lists(keys, max_size=12, unique=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_filter_builder, "_RANGE_KEYS", data.draw(st.sampled_from([2, 100])))
        filters = {path: make_filter(keys_in_file, TWO) for path, keys_in_file in file_keys.items()}
    regions = tuple(key_region(TWO, key) for key in requested_keys)
    scans = tuple(FileScan(make_file(path), regions) for path in file_keys)
    plan = QueryPlan(TWO, 1, (LeafPlan(("a",), scans),))
    result = prune_plan(plan, lambda file: filters[file.path])
    remaining = {
        scan.file.path: {tuple(r.min for r in region.ranges) for region in scan.regions or ()}
        for leaf in result.leaves
        for scan in leaf.scans
    }
    for path, keys_in_file in file_keys.items():
        assert (
            keys_in_file & set(requested_keys) <= remaining.get(path, set()) <= set(requested_keys)
        )


@pytest.mark.parametrize("damage", ["missing", "torn", "other", "newer"])
def test_unreadable_filter_excludes_nothing_and_is_logged_once(
    table: DataTable, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
):
    file = every_third(table, 0)
    every_third(table, 1)
    sidecar = Path(table.root.url_of(file.path + FILTER_SUFFIX))
    content = sidecar.read_bytes()
    if damage == "missing":
        sidecar.unlink()
    else:
        newer = content[:8] + b"\x03" + content[9:]
        sidecar.write_bytes({"torn": content[:-5], "other": b"x" * 99, "newer": newer}[damage])
    engine = make_engine(tmp_path)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert ids(make_query(300, 301, 302), table, engine) == [300, 301]
    (warning,) = [r for r in caplog.records if "key filter" in r.message]
    assert file.path in warning.message


def test_files_without_a_filter_are_read(
    table: DataTable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    every_third(table, 0)
    table.file_settings = FileSettings(page_bytes=1024, filter_bits_per_key=0)
    assert FILTER_SUFFIX not in every_third(table, 1).sidecars
    assert ids(make_query(300, 301, 302), table, make_engine(tmp_path)) == [300, 301]
    assert not caplog.records


def test_cached_filters_are_read_once(tmp_path: Path):
    root = CountingRoot(tmp_path)
    files = [put_filter(root, f"f{n}") for n in range(4)]
    size = make_filter(range(1000)).size_bytes
    cache = KeyFilterCache(int(3.9 * size))
    for file in files[:3] * 2:
        assert cache.get(root, file) is not None
    assert root.reads == ["f0.filter", "f1.filter", "f2.filter"]
    cache.get(root, files[0])
    cache.get(root, files[3])
    assert cache.bytes <= 3.9 * size
    root.reads.clear()
    for file in (files[0], files[3], files[2], files[1]):
        cache.get(root, file)
    # The one that was used longest ago made room.
    assert root.reads == ["f1.filter"]


def test_cache_of_size_zero_stores_nothing(tmp_path: Path):
    root = CountingRoot(tmp_path)
    file = put_filter(root, "f")
    cache = KeyFilterCache(0)
    for _ in range(2):
        assert cache.get(root, file) is not None
    assert (len(root.reads), cache.bytes) == (2, 0)


def test_many_threads_share_a_cache(tmp_path: Path):
    root = CountingRoot(tmp_path)
    files = [put_filter(root, f"f{n}") for n in range(6)]
    size = make_filter(range(1000)).size_bytes
    cache = KeyFilterCache(3 * size)
    wrong: list[str] = []

    def use(seed: int) -> None:
        for place in np.random.default_rng(seed).integers(0, 6, 200):
            result = cache.get(root, files[place])
            if result is None or result.keys != 1000:
                wrong.append(files[place].path)

    threads = [threading.Thread(target=use, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert 0 < cache.bytes <= 3 * size


def test_old_versions_use_the_same_filters(tmp_path: Path):
    with tempfile.TemporaryDirectory() as folder:
        table = DataTable(Path(folder), SCHEMA)
        every_third(table, 0)
        previous = max(table.expected_versions)
        every_third(table, 1)
        engine = make_engine(tmp_path)
        old = Query(make_query(300, 301).regions, version=previous)
        assert ids(old, table, engine) == [300]
        assert ids(make_query(300, 301), table, engine) == [300, 301]


class CountingRoot(DataRoot):
    """Records reads."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.reads: list[str] = []

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        return super().read(path)


def make_file(path: str) -> DataFile:
    return DataFile(path, 1000, 10_000, (0,), (10**9,), sidecars=(FILTER_SUFFIX,))


def make_filter(keys, schema: Schema = SCHEMA) -> KeyFilter:
    builder = KeyFilterBuilder(64, 2**20)
    ascending = sorted(
        (k if isinstance(k, tuple) else (k,) for k in keys), key=lambda k: encode_key(schema, k)
    )
    hashed = hashed_keys(schema, ascending)
    for place in range(len(ascending)):
        builder.add(hashed.hashes[place : place + 1], lambda _: hashed.orders[place])  # noqa: B023
    table = builder.finish()
    assert table is not None
    return table


def put_filter(root: DataRoot, path: str) -> DataFile:
    with root.sink(path + FILTER_SUFFIX) as sink:
        sink.write(make_filter(range(1000)).to_bytes())
    return make_file(path)
