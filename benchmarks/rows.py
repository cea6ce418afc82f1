"""The row of gchq/sleeper's own performance tests, in files.

A random key of ten letters, a random long to sort by, a random value of ten letters.
Files are made once and kept in the benchmarks' folder; the same number gives the same rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.result import check
from benchmarks.schema import SCHEMA
from sleeper.datafiles.write.file import DataFileWriter, FileSettings
from sleeper.files import DataFile
from sleeper.partitions.partition import Partition, tree_from_split_points
from sleeper.schema.model import Schema
from sleeper.storage.location import DataRoot

_LETTERS = 10
_ROWS_AT_ONCE = 500_000


def random_rows(rows: int, seed: int) -> pa.Table:
    """Rows in no order."""
    random = np.random.default_rng(seed)
    sort = pa.array(random.integers(0, 2**62, rows))
    columns = {"key": random_words(random, rows), "sort": sort, "value": random_words(random, rows)}
    return pa.table(columns)


def unsorted_files(folder: Path, rows: int, files: int = 8) -> Path:
    """A folder of so many Parquet files of random rows."""
    target = folder / f"unsorted-{rows}"
    rows_per_file = rows // files
    for number in range(files):
        path = target / f"{number}.parquet"
        count = rows_per_file + (rows - rows_per_file * files if number == 0 else 0)
        _make_once(path, _in_parts(count, number))
    return target


def sorted_files(folder: Path, rows_each: int, files: int) -> tuple[DataRoot, list[str]]:
    """Returns root and paths of data files as the product writes them, over the whole key space."""
    settings = FileSettings()
    name = f"sorted-{rows_each}-{settings.row_group_rows_max}-{settings.page_rows_max}"
    root = DataRoot(folder / name)
    paths = [f"{number:04d}.parquet" for number in range(files)]
    for number, path in enumerate(paths):
        if not (folder / name / f"{path}.checksum").exists():
            write_data_file(root, path, random_rows(rows_each, 1000 + number))
    return root, paths


def write_data_file(root: DataRoot, path: str, rows: pa.Table, schema: Schema = SCHEMA) -> DataFile:
    """Writes rows in no order as a data file."""
    writer = DataFileWriter(root, path, schema, FileSettings())
    sorted_rows = rows.sort_by([("key", "ascending"), ("sort", "ascending")])
    writer.write(sorted_rows.to_batches(_ROWS_AT_ONCE))
    return writer.finish()


def describe(folder: Path, path: str) -> DataFile:
    """Returns the state store's description of a file from `sorted_files`."""
    file = pq.ParquetFile(folder / path)
    last = file.metadata.num_row_groups - 1
    low = file.metadata.row_group(0).column(0).statistics.min
    high = file.metadata.row_group(last).column(0).statistics.max
    size = (folder / path).stat().st_size
    return DataFile(path, file.metadata.num_rows, size, (low,), (high,))


def even_leaves(leaves: int) -> list[Partition]:
    """A tree whose leaves get about as many random rows each."""
    steps = 26**3
    places = [place * steps // leaves for place in range(1, leaves)]
    points = ["".join(chr(97 + place // 26**i % 26) for i in (2, 1, 0)) for place in places]
    return tree_from_split_points(SCHEMA, points)


def sum_of_sort_keys(files: Iterable[Path]) -> int:
    """Of all rows; wraps around, as an int64 does."""
    total = 0
    for path in files:
        for batch in pq.ParquetFile(path).iter_batches(columns=["sort"]):
            total += pc.sum(pc.bit_wise_and(batch.column(0), 0xFFFFFFFF)).as_py()
    return total


def check_sorted(path: Path) -> int:
    """CheckFailedError unless the file's rows are in order; how many there are."""
    rows, previous = 0, None
    for batch in pq.ParquetFile(path).iter_batches(65_536, columns=["key", "sort"]):
        table = pa.Table.from_batches([batch])
        if previous is not None:
            table = pa.concat_tables([previous, table])
        key, sort = (table.column(i).combine_chunks() for i in (0, 1))
        current, initial = (key[1:], sort[1:]), (key[:-1], sort[:-1])
        sorted_rows = pc.or_(
            pc.greater(current[0], initial[0]),
            pc.and_(pc.equal(current[0], initial[0]), pc.greater_equal(current[1], initial[1])),
        )
        check(pc.all(sorted_rows).as_py() is not False, f"{path} is not sorted near row {rows}")
        rows += batch.num_rows
        previous = table.slice(table.num_rows - 1)
    return rows


def check_rows(outputs: Sequence[Path], inputs: Sequence[Path], rows: int) -> None:
    """CheckFailedError unless the outputs are sorted and hold the inputs' rows."""
    result = sum(check_sorted(path) for path in outputs)
    check(result == rows, f"{result} rows came out of {rows}")
    check(
        sum_of_sort_keys(outputs) == sum_of_sort_keys(inputs),
        "the sort keys that came out are not those that went in",
    )


def random_words(random: np.random.Generator, rows: int) -> pa.Array:
    letters = random.integers(97, 123, rows * _LETTERS, dtype=np.uint8)
    ends = np.arange(0, rows * _LETTERS + 1, _LETTERS, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(letters.tobytes())]
    return pa.Array.from_buffers(pa.string(), rows, buffers)


def _in_parts(rows: int, number: int) -> Iterator[pa.Table]:
    for start in range(0, rows, _ROWS_AT_ONCE):
        yield random_rows(min(_ROWS_AT_ONCE, rows - start), number * 1_000_003 + start)


def _make_once(path: Path, tables: Iterator[pa.Table]) -> None:
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    kind = random_rows(0, 0).schema
    with pq.ParquetWriter(unfinished, kind, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)
    unfinished.rename(path)
