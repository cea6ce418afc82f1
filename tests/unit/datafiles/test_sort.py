"""Sorts in memory, and beyond it by runs on disk."""

import ctypes
import errno
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleeper.datafiles.arrow import arrow_schema, view_schema
from sleeper.datafiles.engine.expression import SortKey
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge import runs, sort
from sleeper.datafiles.merge.sort import RowSort, sort_batches
from sleeper.errors import DataError, UnavailableError
from sleeper.schema.model import Field, ListType, MapType, PrimitiveType, Schema
from sleeper.storage import disk
from tests.full_disk import files_of_at_most

P = PrimitiveType
SCHEMA = Schema(
    (Field("id", P.LONG),),
    (),
    (
        Field("text", P.STRING, nullable=True),
        Field("flag", P.BOOLEAN, nullable=True),
        Field("ratio", P.DOUBLE, nullable=True),
        Field("list", ListType(P.STRING), nullable=True),
        Field("map", MapType(P.STRING, P.LONG), nullable=True),
    ),
)
KIND = arrow_schema(SCHEMA)


def make_rows(ids: Sequence[int], width: int = 1) -> pa.Table:
    columns = {
        "id": list(ids),
        "text": [None if n % 3 == 0 else f"{n}" * width for n in ids],
        "flag": [None if n % 5 == 0 else n % 2 == 0 for n in ids],
        "ratio": [None if n % 7 == 0 else n / 3 for n in ids],
        "list": [None if n % 5 == 0 else [str(n)] * (n % 4) for n in ids],
        "map": [None if n % 7 == 0 else {str(m): n for m in range(n % 4)} for n in ids],
    }
    return pa.table(columns, KIND)


@contextmanager
def opened(folder: Path, is_small: bool = False, **options: Any) -> Iterator[RowSort]:
    """A sort, whose buffers are of 16 KiB if it is small."""
    (folder / "spill").mkdir(exist_ok=True)
    engine = EngineSettings(folder / "spill", 2**30, **options)
    with pytest.MonkeyPatch.context() as patch:
        if is_small:
            patch.setattr(sort, "_FIRST_SHARE", 2**15)
            patch.setattr(sort, "_SHARE", 2**16)
        with closing(RowSort(SCHEMA, folder / "runs", engine)) as rows:
            yield rows


def run_files(folder: Path) -> list[Path]:
    return list((folder / "runs").glob("*")) if (folder / "runs").exists() else []


def plain(batches: Iterator[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, view_schema(SCHEMA)).cast(KIND)


@pytest.mark.parametrize("width", [1, 40])
@pytest.mark.parametrize("is_small", [False, True])
def test_all_columns_are_sorted_in_memory_and_beyond(
    tmp_path: Path, is_small: bool, width: int
) -> None:
    ids = random.Random(5).sample(range(3000), 3000)
    table = make_rows(ids, width)
    with opened(tmp_path, is_small) as rows:
        rows.add_batches(table.to_batches(170))
        first, again = plain(rows.batches()), plain(rows.batches())
    assert first.equals(table.sort_by("id"))
    assert again.equals(first)
    assert (len(run_files(tmp_path)) > 3) == is_small


def test_a_buffer_may_have_short_text_and_then_long_text(tmp_path: Path) -> None:
    texts = [make_rows(range(100, 0, -1), width) for width in (1, 100, 1)]
    with opened(tmp_path) as rows:
        for table in texts:
            rows.add_batches(table.to_batches())
        result = plain(rows.batches())
    expected = pa.concat_tables(texts)
    assert result.num_rows == 300
    assert sorted(map(repr, result.to_pylist())) == sorted(map(repr, expected.to_pylist()))
    assert result.column("id").to_pylist() == sorted(expected.column("id").to_pylist())


def test_a_batch_that_exceeds_a_buffer_becomes_several_runs(tmp_path: Path) -> None:
    table = make_rows(range(5000, 0, -1), 100)
    with opened(tmp_path, True) as rows:
        rows.add_batches(table.combine_chunks().to_batches())
        assert plain(rows.batches()).equals(table.sort_by("id"))
    assert len(run_files(tmp_path)) > 10


def test_more_runs_than_may_be_merged_are_merged_in_passes(tmp_path: Path) -> None:
    table = make_rows(random.Random(1).sample(range(5000), 5000))
    with opened(tmp_path, True, merge_files_max=3) as rows:
        rows.add_batches(table.to_batches(500))
        result = plain(rows.batches())
        assert result.equals(table.sort_by("id"))
        count = len(run_files(tmp_path))
        assert count > 9
        rows.batches().close()
    # The files of passes are gone.
    assert len(run_files(tmp_path)) == count


def test_wide_batches_are_merged_in_small_groups(tmp_path: Path) -> None:
    some = [runs.Run(tmp_path, 100, 10_000, 10, 1000)] * 100
    assert runs._runs_max(some, EngineSettings(tmp_path)) == 64
    assert runs._runs_max(some, EngineSettings(tmp_path, merge_files_max=5)) == 5
    assert runs._runs_max(some, EngineSettings(tmp_path, 80_000)) == 10
    assert runs._runs_max(some, EngineSettings(tmp_path, 8_000)) == 2


def wide_batches(rows: int, width: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, 10):
        ids = [n * 7919 % rows for n in range(start, start + 10)]
        text = [str(n).ljust(width) for n in ids]
        nulls = [pa.nulls(10, kind) for kind in KIND.types[2:]]
        yield pa.RecordBatch.from_arrays([pa.array(ids), pa.array(text), *nulls], schema=KIND)


def test_rows_of_which_few_fit_into_memory_are_merged(tmp_path: Path) -> None:
    (tmp_path / "spill").mkdir()
    engine = EngineSettings(tmp_path / "spill", 16 * 2**20)
    batches = sort_batches(wide_batches(400, 200_000), SCHEMA, engine)
    assert [n for batch in batches for n in batch.column("id").to_pylist()] == list(range(400))


def test_the_runs_of_passes_are_as_large_as_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    write = runs.write_run

    def record(*args: Any) -> runs.Run:
        run = write(*args)
        sizes.append(run.path.stat().st_size)
        return run

    monkeypatch.setattr(runs, "write_run", record)
    monkeypatch.setattr(runs, "BATCH_ROWS", 100)
    monkeypatch.setattr(sort, "_FIRST_SHARE", 2**12)
    monkeypatch.setattr(sort, "_SHARE", 2**12)
    with opened(tmp_path, merge_files_max=8) as rows:
        rows.add_batches(wide_batches(3000, 1000))
        ids = [n for batch in rows.batches() for n in batch.column("id").to_pylist()]
    assert ids == list(range(3000))
    assert sizes
    assert sum(sizes) < 2 * 3000 * 1000


def test_a_merge_of_runs_sorts_nothing(tmp_path: Path) -> None:
    with opened(tmp_path, True) as rows:
        rows.add_batches(make_rows(range(3000, 0, -1)).to_batches(100))
        with rows.frame() as frame:
            plan = frame.execution_plan().display_indent()
    assert "SortPreservingMergeExec" in plan
    assert "SortExec" not in plan
    assert "RepartitionExec" not in plan


def test_lost_runs_are_no_lost_rows(tmp_path: Path) -> None:
    with opened(tmp_path, True) as rows:
        rows.add_batches(make_rows(range(3000)).to_batches(100))
        next(rows.batches())
        for path in run_files(tmp_path)[1:]:
            path.unlink()
        with pytest.raises(UnavailableError, match="sorted rows are lost"):
            list(rows.batches())
        for path in run_files(tmp_path):
            path.unlink()
        with pytest.raises(UnavailableError, match="cannot read sorted rows"):
            rows.sample()


def test_a_sort_of_no_rows_is_an_empty_frame(tmp_path: Path) -> None:
    with opened(tmp_path) as rows:
        assert list(rows.batches()) == []
        with rows.frame() as frame:
            assert frame.count() == 0


def test_a_merge_keeps_no_buffers(tmp_path: Path) -> None:
    with opened(tmp_path, True, threads=100) as rows:
        rows.add_batches(make_rows(range(3000)).to_batches(100))
        assert len(rows._writing) <= 4
        assert next(rows.batches()).num_rows
        assert not rows._free


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.integers(-5, 5), max_size=30), max_size=6), st.booleans())
def test_files_and_batches_are_sorted_together(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]], is_small: bool
) -> None:
    folder = tmp_path_factory.mktemp("sort")
    with opened(folder, is_small) as rows:
        for number, ids in enumerate(parts):
            table = make_rows(ids)
            if number % 2:
                rows.add_batches(table.to_batches())
                continue
            pq.write_table(table, folder / f"{number}.parquet")
            rows.add_file(folder / f"{number}.parquet", KIND, len(ids), table.nbytes)
        ids = plain(rows.batches()).column("id").to_pylist()
    assert ids == sorted(number for part in parts for number in part)


def test_a_file_with_other_rows_than_its_footer_said_is_refused(tmp_path: Path) -> None:
    pq.write_table(make_rows(range(10)), tmp_path / "a.parquet")
    with opened(tmp_path) as rows:
        rows.add_file(tmp_path / "a.parquet", KIND, 11, 1)
        with pytest.raises(DataError, match="sorted 10 rows of 11"):
            list(rows.batches())
        with pytest.raises(UnavailableError, match="not read completely"):
            list(rows.batches())


def test_a_sample_has_the_first_rows_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sort, "_SAMPLED_ROWS", 50)
    for is_small in (False, True):
        with opened(tmp_path, is_small) as rows:
            rows.add_batches(make_rows(range(3000, 0, -1)).to_batches(100))
            sample = rows.sample()
        assert sample.schema.equals(KIND)
        assert sample.num_rows == 50
        ids = sample.column("id").to_pylist()
        assert ids == sorted(ids)


def test_an_order_may_descend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort, "_FIRST_SHARE", 2**15)
    monkeypatch.setattr(sort, "_SHARE", 2**16)
    engine = EngineSettings(tmp_path)
    table = make_rows([n % 100 for n in range(3000)])
    order = (SortKey("text", is_descending=True), SortKey("id"))
    for part in (table, table.slice(0, 10)):
        batches = sort_batches(iter(part.to_batches(100)), SCHEMA, engine, order)
        sorted_rows = pa.Table.from_batches(list(batches)).cast(KIND)
        texts = sorted_rows.column("text")
        filled = [text for text in texts.to_pylist() if text is not None]
        assert filled == sorted(filled, reverse=True)
        # Nulls are last.
        assert pc.is_null(texts).to_pylist() == [False] * len(filled) + [True] * texts.null_count
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_fails_the_sort_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sort, "_FIRST_SHARE", 2**15)
    monkeypatch.setattr(sort, "_SHARE", 2**16)
    engine = EngineSettings(tmp_path)
    batches = make_rows(range(3000)).to_batches(100)
    with files_of_at_most(4000), pytest.raises(UnavailableError, match="cannot write sorted rows"):
        list(sort_batches(iter(batches), SCHEMA, engine))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_fails_a_pass_of_a_merge_and_leaves_the_runs(tmp_path: Path) -> None:
    table = make_rows(random.Random(1).sample(range(5000), 5000))
    with opened(tmp_path, True, merge_files_max=3) as rows:
        rows.add_batches(table.to_batches(500))
        assert plain(rows.batches()).num_rows == 5000
        first = run_files(tmp_path)
        largest = max(path.stat().st_size for path in first)
        with (
            files_of_at_most(largest + 1000),
            pytest.raises(UnavailableError, match="cannot write sorted rows"),
        ):
            plain(rows.batches())
        assert set(run_files(tmp_path)) == set(first)
        assert plain(rows.batches()).equals(table.sort_by("id"))


@pytest.mark.parametrize("merge_files_max", [3, 64])
def test_a_run_that_the_disk_refused_after_its_write_fails_the_sort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merge_files_max: int
) -> None:
    """The system reports the error of a run once, to whoever asks."""
    table = make_rows(random.Random(1).sample(range(5000), 5000))
    asked: list[str] = []

    def fail_third(descriptor: int, *_: int) -> int:
        asked.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        ctypes.set_errno(errno.EIO)
        return -1 if len(asked) == 3 else 0

    with opened(tmp_path, True, merge_files_max=merge_files_max) as rows:
        rows.add_batches(table.to_batches(500))
        monkeypatch.setattr(disk, "_sync_file_range", lambda: fail_third)
        with pytest.raises(UnavailableError, match="Input/output error"):
            plain(rows.batches())
        assert set(asked) <= set(map(str, run_files(tmp_path)))
        assert plain(rows.batches()).equals(table.sort_by("id"))


def test_a_file_that_the_disk_took_has_no_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"content")
    disk.check_written(file)
    with pytest.raises(FileNotFoundError):
        disk.check_written(tmp_path / "missing")
