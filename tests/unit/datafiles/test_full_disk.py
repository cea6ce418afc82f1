"""Writers of data files whose writes the system refuses in the middle of a file."""

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge.request import MergeInput, MergeRequest
from sleeper.datafiles.merge.sort import RowSort
from sleeper.datafiles.verification import ExpectedFile, verify_file
from sleeper.datafiles.write import merged, sorted_file
from sleeper.datafiles.write.file import FileSettings
from sleeper.datafiles.write.merged import write_merge
from sleeper.datafiles.write.partitioned import FileStrategy, WriteTarget, write_sorted
from sleeper.datafiles.write.sorted_file import write_sorted_file
from sleeper.errors import UnavailableError
from sleeper.files import DataFile
from sleeper.partitions.partition import tree_from_split_points
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.storage.location import DataRoot
from tests.full_disk import files_of_at_most

SCHEMA = Schema(
    (Field("key", PrimitiveType.LONG),), (), (Field("value", PrimitiveType.BYTE_ARRAY),)
)
ROWS = 30_000
Write = Callable[[Path, WriteTarget], DataFile]


def make_rows(numbers: list[int]) -> pa.Table:
    generator = random.Random(1)
    values = [generator.randbytes(20) for _ in numbers]
    return pa.table({"key": numbers, "value": values}, arrow_schema(SCHEMA))


def merge_by_engine(folder: Path, target: WriteTarget) -> DataFile:
    inputs = []
    for number in range(2):
        path = folder / f"{number}.parquet"
        if not path.exists():
            pq.write_table(make_rows(list(range(number, ROWS, 2))), path, store_schema=False)
        inputs.append(MergeInput(str(path), bytes=path.stat().st_size))
    file = write_merge(MergeRequest(SCHEMA, tuple(inputs)), EngineSettings(folder), target)
    assert file is not None
    return file


def sort_by_engine(folder: Path, target: WriteTarget) -> DataFile:
    unsorted = RowSort(SCHEMA, folder / "runs", EngineSettings(folder))
    unsorted.add_batches(make_rows(list(range(ROWS, 0, -1))).to_batches())
    written = write_sorted_file(unsorted, target)
    assert written is not None
    return written.file


def write_in_steps(_: Path, target: WriteTarget) -> DataFile:
    batches = make_rows(list(range(ROWS))).to_batches(5_000)
    (written,) = write_sorted(iter(batches), target, FileStrategy.ONE_FILE_PER_LEAF)
    return written.file


@pytest.mark.parametrize("write", [merge_by_engine, sort_by_engine, write_in_steps])
def test_a_refused_write_is_unavailable_and_leaves_no_file(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_file, "KEPT_BYTES_MAX", 0)
    if write is merge_by_engine:
        monkeypatch.delattr(merged, "write_sorted")
    root = DataRoot(tmp_path / "data")
    settings = FileSettings(row_group_bytes=10_000)
    target = WriteTarget(root, "t", SCHEMA, tree_from_split_points(SCHEMA, []), 7, settings)
    file = write(tmp_path, target)
    root.delete([file.path + suffix for suffix in ("", *file.sidecars)])
    assert _files(tmp_path / "data") == []
    for part in (0.1, 0.6, 0.99):
        with files_of_at_most(int(file.bytes * part)), pytest.raises(UnavailableError):
            write(tmp_path, target)
        assert _files(tmp_path / "data") == []
    again = write(tmp_path, target)
    assert verify_file(root, SCHEMA, ExpectedFile(again)) == []


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
