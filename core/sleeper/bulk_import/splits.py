"""Splits: the parts of the input files that one task reads."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.datafiles.engine.session import LINE_BYTES_MAX
from sleeper.datafiles.sources.files import (
    RowChecker,
    SourceFormat,
    find_source_files,
    source_format,
)
from sleeper.datafiles.sources.parquet import open_parquet, read_parquet, warn_of_extra_columns
from sleeper.datafiles.sources.text import read_csv, read_json_lines
from sleeper.schema.model import Schema
from sleeper.storage.s3_file import SourceFile

_FOOTERS_AT_ONCE = 16
_SPLITS_PER_TASK = 4
_SPLIT_BYTES_MIN = 8 * 1024**2


@dataclass(frozen=True, slots=True)
class InputSplit:
    """Row groups of a Parquet file with their number of rows, or a whole text file.

    `line_bytes_max` limits the lines of text.
    """

    file: SourceFile
    row_groups: tuple[int, ...] | None = None
    rows: int | None = None
    line_bytes_max: int = LINE_BYTES_MAX


def plan_splits(
    paths: Sequence[SourceFile],
    schema: Schema,
    parallelism: int,
    bytes_max: int,
    refuses_extra_columns: bool = False,
    line_bytes_max: int = LINE_BYTES_MAX,
) -> tuple[InputSplit, ...]:
    """Returns the splits of all files, and of files below folders and prefixes, in order.

    A split has at most `bytes_max` bytes, unless it is one row group or text. This reads all
    footers and no rows. InvalidRequestError if a file is missing or unreadable, or its columns
    do not fit the table.
    """
    files = find_source_files(paths)
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE, "footers") as threads:
        groups = list(
            threads.map(lambda file: _row_groups(file, schema, refuses_extra_columns), files)
        )
    size = sum(group.size for row_groups in groups for group in row_groups or ())
    target_bytes = min(max(size // (parallelism * _SPLITS_PER_TASK), _SPLIT_BYTES_MIN), bytes_max)
    splits: list[InputSplit] = []
    for file, row_groups in zip(files, groups, strict=True):
        if row_groups is None:
            splits.append(InputSplit(file, line_bytes_max=line_bytes_max))
        else:
            splits += _cut_file(file, row_groups, target_bytes)
    return tuple(splits)


def read_split(split: InputSplit, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yields the split's rows as batches of the table's Arrow schema, the same on each call.

    InvalidRequestError names the file, row and field that do not fit.
    """
    checker = RowChecker(schema, str(split.file), None, line_bytes_max=split.line_bytes_max)
    match source_format(split.file):
        case SourceFormat.PARQUET:
            yield from read_parquet(split.file, checker, split.row_groups)
        case SourceFormat.CSV:
            yield from read_csv(split.file, checker)
        case SourceFormat.JSON_LINES:
            yield from read_json_lines(split.file, checker)


@dataclass(frozen=True, slots=True)
class _RowGroup:
    place: int
    rows: int
    size: int


def _row_groups(
    file: SourceFile, schema: Schema, refuses_extra_columns: bool
) -> list[_RowGroup] | None:
    """Returns the non-empty row groups of a Parquet file, None for text."""
    if source_format(file) is not SourceFormat.PARQUET:
        return None
    checker = RowChecker(schema, str(file), None, refuses_extra_columns=refuses_extra_columns)
    parquet = open_parquet(file, checker)
    if parquet is None:
        return []
    warn_of_extra_columns(file, parquet, schema)
    row_groups = []
    with parquet:
        for place in range(parquet.metadata.num_row_groups):
            group: pq.RowGroupMetaData = parquet.metadata.row_group(place)
            if group.num_rows:
                row_groups.append(_RowGroup(place, group.num_rows, group.total_byte_size))
    return row_groups


def _cut_file(file: SourceFile, groups: Sequence[_RowGroup], target_bytes: int) -> list[InputSplit]:
    splits, taken, size = [], [], 0
    for group in groups:
        taken.append(group)
        size += group.size
        if size >= target_bytes or group is groups[-1]:
            rows = sum(each.rows for each in taken)
            splits.append(InputSplit(file, tuple(each.place for each in taken), rows))
            taken, size = [], 0
    return splits
