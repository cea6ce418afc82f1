"""Merge, sort, routing and writer, compared with sorting in Python."""

import errno
import gc
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.scan import count_scans
from sleeper.datafiles.engine.session import open_session
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge.deletes import DeletedRows
from sleeper.datafiles.merge.frame import merge_frame
from sleeper.datafiles.merge.plan import merge
from sleeper.datafiles.merge.request import MergeInput, MergeRequest, Stored, with_hidden
from sleeper.datafiles.merge.sort import RowSort
from sleeper.datafiles.merge.steps import ProcessingStep
from sleeper.datafiles.remote.file_end import section_ends
from sleeper.datafiles.sidecars.sketches import sketches_from_bytes
from sleeper.datafiles.write.file import DataFileWriter, FileSettings
from sleeper.datafiles.write.partitioned import (
    FileStrategy,
    WriteTarget,
    WrittenFile,
    write_sorted,
)
from sleeper.errors import DataError, StateMovedOnError, UnavailableError
from sleeper.partitions.partition import Partition, split_region, tree_from_split_points
from sleeper.partitions.region import Range, Region, key_region, whole_region
from sleeper.processing.model import AgeOff, Processing
from sleeper.schema.model import Field, LatestRows, PrimitiveType, Schema
from sleeper.storage.location import DataRoot
from tests.examples import examples
from tests.seeds import choose_seed

P = PrimitiveType
SCHEMA = Schema(
    (Field("Key A", P.STRING), Field("n", P.INT)),
    (Field("t", P.LONG),),
    (Field("v", P.BYTE_ARRAY, nullable=True),),
)

Row = tuple[str, int, int, bytes | None]
rows_strategy = st.lists(
    st.tuples(
        st.sampled_from(["", "a", "ab", "b", "é", "z\0", "𝄞"]),
        st.integers(-2, 2),
        st.integers(-(2**63), 2**63 - 1),
        st.none() | st.binary(max_size=2),
    ),
    max_size=40,
)
quick = settings(
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)


def make_batch(rows: list[Row]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [[], [], [], []]
    kinds = arrow_schema(SCHEMA)
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, kinds, strict=True)], schema=kinds
    )


def list_rows(batches: Iterator[pa.RecordBatch]) -> list[Row]:
    return [tuple(r.values()) for b in batches for r in b.to_pylist()]  # type: ignore[misc]


def sort_key(row: Row) -> Any:
    return row[:3]


def write_file(folder: Path, name: str, rows: list[Row], row_group: int = 100_000) -> str:
    writer = DataFileWriter(
        DataRoot(folder), name, SCHEMA, FileSettings(row_group_rows_max=row_group)
    )
    writer.write([make_batch(sorted(rows, key=sort_key))])
    writer.finish()
    return str(folder / name)


def engine(folder: Path, **options: Any) -> EngineSettings:
    spill = folder / "spill"
    spill.mkdir(exist_ok=True)
    return EngineSettings(spill, **options)


@quick
@given(st.lists(rows_strategy.filter(len), min_size=1, max_size=6), st.integers(2, 4))
def test_merge_yields_all_rows_in_key_order(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[Row]], most: int
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    inputs = tuple(
        MergeInput(write_file(folder, f"{i}.parquet", rows)) for i, rows in enumerate(files)
    )
    options = engine(folder, merge_files_max=most)
    result = list_rows(merge(MergeRequest(SCHEMA, inputs), options))
    all_rows = [row for rows in files for row in rows]
    assert [sort_key(r) for r in result] == [sort_key(r) for r in sorted(all_rows, key=sort_key)]
    assert sorted(result, key=repr) == sorted(all_rows, key=repr)
    assert list(options.spill_folder.iterdir()) == []


@quick
@given(rows_strategy.filter(len), st.data())
def test_merge_yields_rows_of_the_regions_only(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("regions")
    url = write_file(folder, "a.parquet", rows)
    values = st.sampled_from(sorted({r[0] for r in rows}))
    regions = data.draw(
        st.lists(
            st.one_of(
                st.builds(lambda k, n: key_region(SCHEMA, (k, n)), values, st.integers(-2, 2)),
                st.builds(lambda k: Region((Range(k, None), Range(0, 2))), values),
                st.builds(lambda k: Region((Range("", k + "\0"), Range(-(2**31), None))), values),
            ),
            min_size=1,
            max_size=5,
        )
    )
    request = MergeRequest(SCHEMA, (MergeInput(url, tuple(regions)),))
    result = list_rows(merge(request, engine(folder)))
    expected = [r for r in rows if any(g.contains(r[:2]) for g in regions)]
    assert sorted(result, key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize("count", [1, 2, 9, 70])
@pytest.mark.parametrize("partitions", [1, 2])
def test_merge_plan_never_sorts(tmp_path: Path, count: int, partitions: int) -> None:
    url = write_file(tmp_path, "a.parquet", [("a", 1, 1, b"x"), ("b", 1, 1, None)])
    regions = (key_region(SCHEMA, ("a", 1)),)
    inputs = tuple(MergeInput(url, regions if i % 2 else None) for i in range(count))
    session = open_session(engine(tmp_path), partitions)
    frame, _ = merge_frame(MergeRequest(SCHEMA, inputs, ("v", "Key A")), session)
    plan = str(frame.execution_plan())
    assert "SortExec" not in plan
    assert ("SortPreservingMergeExec" in plan) == (count > 1)


@pytest.mark.parametrize("by", [None, "v", "w"])
@pytest.mark.parametrize("count", [1, 2, 9])
def test_merge_plan_of_latest_rows_never_sorts(tmp_path: Path, by: str | None, count: int) -> None:
    values = (*SCHEMA.values, Field("w", P.TIMESTAMP, nullable=True))
    latest = replace(SCHEMA, values=values, latest=LatestRows(by))
    regions = (key_region(SCHEMA, ("a", 1)),)
    inputs = []
    for i in range(count):
        kind = arrow_schema(with_hidden(latest, i % 3 == 2, i % 2 == 1))
        url = str(tmp_path / f"{i}.parquet")
        pq.write_table(kind.empty_table(), url)
        inputs.append(MergeInput(url, regions if i % 2 else None, number=None if i % 3 == 2 else i))
    session = open_session(engine(tmp_path))
    stored = [None, Stored(), Stored(False, False), Stored(True, True, 5)]
    for choice in stored:
        request = MergeRequest(latest, tuple(inputs), stored=choice)
        frame, _ = merge_frame(request, session)
        plan = str(frame.execution_plan())
        assert "SortExec" not in plan
        assert count_scans(frame.execution_plan()) == count
        assert ("first_of_key" in plan) == (count > 1)


@pytest.mark.parametrize("files_max", [2, 64])
@pytest.mark.parametrize("by", [None, "v"])
def test_merge_of_latest_rows_keeps_the_newest_across_batches_and_passes(
    tmp_path: Path, by: str | None, files_max: int
) -> None:
    chosen = random.Random(f"{choose_seed()} {by} {files_max}")
    schema = Schema((Field("k", P.STRING),), (), (Field("v", P.LONG),), LatestRows(by))
    newest: dict[str, tuple[tuple[int, int], int, bool]] = {}
    inputs = []
    for number in range(1, 8):
        keys = sorted(chosen.sample([f"{k:05}" for k in range(12_000)], 9_000))
        values = [chosen.randrange(5) for _ in keys]
        deleted = [chosen.random() < 0.3 or None for _ in keys]
        for key, value, is_deleted in zip(keys, values, deleted, strict=True):
            rank = (value if by else 0, number)
            if key not in newest or newest[key][0] < rank:
                newest[key] = (rank, value, bool(is_deleted))
        table = pa.table({"k": keys, "v": values, "__deleted": pa.array(deleted, pa.bool_())})
        pq.write_table(table, tmp_path / f"{number}.parquet")
        inputs.append(MergeInput(str(tmp_path / f"{number}.parquet"), number=number))
    options = replace(engine(tmp_path), merge_files_max=files_max)
    request = MergeRequest(schema, tuple(inputs))
    expected = sorted((k, value) for k, (_, value, is_dead) in newest.items() if not is_dead)
    assert list_rows(merge(request, options)) == expected
    kept = merge(replace(request, stored=Stored(hiding_from=4)), options)
    stored = [
        (k, value, rank[1], is_dead or None)
        for k, (rank, value, is_dead) in sorted(newest.items())
        if not is_dead or rank[1] > 4
    ]
    assert list_rows(kept) == stored


def test_columns_and_limit_are_pushed_down(tmp_path: Path) -> None:
    url = write_file(tmp_path, "a.parquet", [("b", 1, 1, b"2"), ("a", 1, 1, b"1")])
    request = MergeRequest(SCHEMA, (MergeInput(url), MergeInput(url)), ("v",), limit=3)
    assert list_rows(merge(request, engine(tmp_path))) == [(b"1",), (b"1",), (b"2",)]


LIMITED = Schema(
    (Field("k", P.LONG),), (), (Field("v", P.LONG), Field("t", P.TIMESTAMP, nullable=True))
)


@pytest.mark.parametrize("latest", [None, LatestRows()])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("condition", ["region", "delete", "filter"])
def test_a_limit_keeps_the_first_rows_that_satisfy_a_condition(
    tmp_path: Path, latest: LatestRows | None, count: int, condition: str
) -> None:
    """The first row group has other rows, too, and the next ones have enough without them."""
    schema = replace(LIMITED, latest=latest)
    url = str(tmp_path / "a.parquet")
    columns = {
        "k": pa.array(range(100), pa.int64()),
        "v": pa.array(range(100), pa.int64()),
        "t": pa.array([0] * 5 + [10_000_000] * 95, pa.int64()).cast(pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(columns, schema=arrow_schema(schema)), url, row_group_size=10)
    number = None if latest is None else 1
    regions = (Region((Range(5, None),)),) if condition == "region" else None
    hidden = (Region((Range(-1, 5),)),) if condition == "delete" else ()
    deleted = DeletedRows(schema, hidden) if hidden else None
    age_off = ProcessingStep(Processing(filters=(AgeOff("t", 1_000),)), 10_000)
    request = MergeRequest(
        schema,
        tuple(MergeInput(url, regions, None, deleted, None, number) for _ in range(count)),
        ("k",),
        limit=3 * count,
        steps=(age_off,) if condition == "filter" else (),
    )
    is_once = latest is not None
    expected = [5, 6, 7, 8, 9, 10][: 3 * count] if is_once else sorted([5, 6, 7] * count)
    assert [k for (k,) in list_rows(merge(request, engine(tmp_path)))] == expected


def test_missing_and_torn_files_raise_different_errors(tmp_path: Path) -> None:
    url = write_file(tmp_path, "a.parquet", [("a", 1, 1, b"x")] * 1000)
    removed_paths = MergeInput(str(tmp_path / "gone.parquet"))
    for inputs in [
        (removed_paths,),
        (MergeInput(url), removed_paths),
        (removed_paths, MergeInput(url), MergeInput(url)),
    ]:
        with pytest.raises(StateMovedOnError, match="a data file is missing"):
            list(merge(MergeRequest(SCHEMA, inputs), engine(tmp_path)))
    torn = tmp_path / "torn.parquet"
    torn.write_bytes(Path(url).read_bytes()[:-30])
    with pytest.raises(DataError):
        list(merge(MergeRequest(SCHEMA, (MergeInput(str(torn)),)), engine(tmp_path)))


LEAVES = [p for p in tree_from_split_points(SCHEMA, ["a", "b", "m"]) if p.is_leaf]


def two_dimensional_leaves() -> list[Partition]:
    below, above = split_region(whole_region(SCHEMA), 0, "b")
    first, second = split_region(below, 1, 0)
    regions = [first, second, above]
    return [Partition(f"p{i}", r) for i, r in enumerate(regions)]  # type: ignore[arg-type]


@quick
@given(rows_strategy, st.sampled_from(FileStrategy), st.booleans(), st.integers(1, 3))
def test_sorted_rows_are_written_to_their_leaves(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[Row],
    strategy: FileStrategy,
    plain: bool,
    parts: int,
) -> None:
    folder = tmp_path_factory.mktemp("ingest")
    leaves = LEAVES if plain else two_dimensional_leaves()
    unsorted = RowSort(SCHEMA, folder, engine(folder))
    for part in range(parts):
        unsorted.add_batches([make_batch(rows[part::parts])] if rows[part::parts] else [])
    target = WriteTarget(
        DataRoot(folder), "0a0a0a0a", SCHEMA, leaves, 7, FileSettings(row_group_rows_max=3)
    )
    row_counts: list[int] = []
    output = write_sorted(unsorted.batches(), target, strategy, row_counts.append)
    assert unsorted.rows == sum(row_counts) == len(rows)
    if strategy is FileStrategy.ONE_REFERENCE_PER_LEAF:
        assert len(output) == (1 if rows else 0)
    results: list[Row] = []
    for item in output:
        results += check_file(folder, item, {leaf.id: leaf for leaf in leaves})
    assert sorted(results, key=repr) == sorted(rows, key=repr)


def check_file(folder: Path, written: WrittenFile, leaves: dict[Any, Partition]) -> list[Row]:
    """The rows of the file, after holding its facts against them."""
    file = written.file
    table = pq.read_table(folder / file.path)
    assert table.schema.equals(arrow_schema(SCHEMA))
    rows: list[Row] = [tuple(r.values()) for r in table.to_pylist()]  # type: ignore[misc]
    assert [sort_key(r) for r in rows] == sorted(sort_key(r) for r in rows)
    assert (file.rows, file.bytes) == (len(rows), (folder / file.path).stat().st_size)
    assert file.smallest_key == tuple(min(r[d] for r in rows) for d in (0, 1))
    assert file.largest_key == tuple(max(r[d] for r in rows) for d in (0, 1))
    for reference in written.references:
        region = leaves[reference.partition_id].region
        assert reference.rows == sum(region.contains(r[:2]) for r in rows)
    assert sum(r.rows for r in written.references) == len(rows)
    sidecar = DataRoot(folder).read(file.path + ".sketches")
    first, _ = sketches_from_bytes(SCHEMA, sidecar, "x")
    assert first.points(whole_region(SCHEMA).ranges[0])[0] in {r[0] for r in rows}
    return rows


def test_sort_beyond_memory_spills(tmp_path: Path) -> None:
    schema = Schema((Field("k", P.LONG),), (), (Field("s", P.STRING),))
    numbers = list(range(400_000))
    random.Random(5).shuffle(numbers)
    options = engine(tmp_path, memory_bytes=48 * 1024 * 1024)
    unsorted = RowSort(schema, tmp_path, options)
    table = pa.table({"k": numbers, "s": ["x" * 60] * len(numbers)}, arrow_schema(schema))
    unsorted.add_batches(table.to_batches(50_000))
    keys = [k for b in unsorted.batches() for k in b.column(0).to_pylist()]
    assert keys == sorted(numbers)


def test_full_disk_leaves_no_complete_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any, table: Any, **_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", refuse)
    target = WriteTarget(DataRoot(tmp_path), "0a0a0a0a", SCHEMA, LEAVES, 7)
    with pytest.raises(UnavailableError, match="No space left"):
        write_sorted(
            iter([make_batch([("a", 1, 1, b"x")])]), target, FileStrategy.ONE_FILE_PER_LEAF
        )
    gc.collect()


@pytest.mark.parametrize("strategy", FileStrategy)
def test_empty_batches_write_no_file(tmp_path: Path, strategy: FileStrategy) -> None:
    target = WriteTarget(DataRoot(tmp_path), "0a0a0a0a", SCHEMA, LEAVES, 7)
    empty = make_batch([("a", 1, 1, b"x")]).slice(0, 0)
    assert write_sorted(iter([empty, empty]), target, strategy) == []
    assert not list(tmp_path.rglob("*.parquet"))


def test_interrupted_write_leaves_no_file(tmp_path: Path) -> None:
    def yield_and_fail() -> Iterator[pa.RecordBatch]:
        yield make_batch([("a", 1, 1, b"x")])
        raise KeyboardInterrupt

    target = WriteTarget(DataRoot(tmp_path), "0a0a0a0a", SCHEMA, LEAVES, 7)
    with pytest.raises(KeyboardInterrupt):
        write_sorted(yield_and_fail(), target, FileStrategy.ONE_FILE_PER_LEAF)
    assert not list(tmp_path.rglob("*.parquet*"))


def test_full_disk_during_a_pass_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    urls = [write_file(tmp_path, f"{n}.parquet", [("a", n, 1, None)]) for n in range(6)]
    monkeypatch.setattr(pq.ParquetWriter, "write_batch", full)
    (tmp_path / "spill").mkdir()
    request = MergeRequest(SCHEMA, tuple(MergeInput(url) for url in urls))
    with pytest.raises(UnavailableError, match="No space left"):
        list(merge(request, EngineSettings(tmp_path / "spill", merge_files_max=2)))
    assert list((tmp_path / "spill").iterdir()) == []


def test_only_scans_that_may_skip_pages_read_page_indexes(tmp_path: Path) -> None:
    table = pa.Table.from_batches([make_batch([("a", n, 0, b"v") for n in range(100)])])
    path = tmp_path / "in.parquet"
    pq.write_table(table, path, write_page_index=True)
    content = bytearray(path.read_bytes())
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    start = section_ends(pq.read_metadata(path))[-1]
    content[start:footer] = b"\xff" * (footer - start)
    path.write_bytes(content)
    engine = EngineSettings(tmp_path)
    rows = merge(MergeRequest(SCHEMA, (MergeInput(str(path)),)), engine)
    assert sum(batch.num_rows for batch in rows) == 100
    some = MergeInput(str(path), regions=[key_region(SCHEMA, ("a", 7))])
    with pytest.raises(DataError):
        list(merge(MergeRequest(SCHEMA, (some,)), engine))
