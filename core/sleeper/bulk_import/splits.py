"""Splits of bulk imports: the parts of the input files that one task reads, and a sample of keys.

The sample determines the split points of the partition tree and of the work.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.datafiles.casts import cast_key_column
from sleeper.datafiles.engine.settings import LINE_BYTES_MAX
from sleeper.datafiles.sources.files import (
    RowChecker,
    SourceFormat,
    find_source_files,
    source_format,
)
from sleeper.datafiles.sources.parquet import (
    UNREADABLE,
    open_parquet,
    read_parquet,
    warn_of_extra_columns,
)
from sleeper.datafiles.sources.text import read_csv, read_json_lines
from sleeper.datafiles.write.key_facts import KeySampler
from sleeper.errors import InvalidRequestError, classify_error
from sleeper.schema.model import Key, Schema
from sleeper.storage.bucket_folder import SourceFile
from sleeper.storage.source_options import DEFAULT_OPTIONS, SourceOptions

_FOOTERS_AT_ONCE = 16
_SPLITS_PER_TASK = 4
_SPLIT_BYTES_MIN = 8 * 1024**2


@dataclass(frozen=True, slots=True)
class InputSplit:
    """Row groups of a Parquet file with their number of rows, or a whole text file.

    `line_bytes_max` limits the lines of text. `options` say how the file is read.
    """

    file: SourceFile
    row_groups: tuple[int, ...] | None = None
    rows: int | None = None
    line_bytes_max: int = LINE_BYTES_MAX
    options: SourceOptions = DEFAULT_OPTIONS

    def make_checker(self, schema: Schema) -> RowChecker:
        """Returns a checker of the split's rows."""
        return RowChecker(
            schema, str(self.file), None, line_bytes_max=self.line_bytes_max, options=self.options
        )


def plan_splits(
    paths: Sequence[SourceFile],
    schema: Schema,
    parallelism: int,
    bytes_max: int,
    refuses_extra_columns: bool = False,
    line_bytes_max: int = LINE_BYTES_MAX,
    options: SourceOptions = DEFAULT_OPTIONS,
) -> tuple[InputSplit, ...]:
    """Returns the splits of all files, and of files below folders and prefixes, in order.

    A split has at most `bytes_max` bytes, unless it is one row group or text. This reads all
    footers and no rows. InvalidRequestError if a file is missing or unreadable, or its columns
    do not fit the table.
    """
    files = find_source_files(paths, options)
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE, "footers") as threads:
        groups = list(
            threads.map(
                lambda file: _row_groups(file, schema, refuses_extra_columns, options), files
            )
        )
    size = sum(group.size for row_groups in groups for group in row_groups or ())
    target_bytes = min(max(size // (parallelism * _SPLITS_PER_TASK), _SPLIT_BYTES_MIN), bytes_max)
    splits: list[InputSplit] = []
    for file, row_groups in zip(files, groups, strict=True):
        if row_groups is None:
            splits.append(InputSplit(file, line_bytes_max=line_bytes_max, options=options))
        else:
            cut = _cut_file(file, row_groups, target_bytes)
            splits += [replace(each, options=options) for each in cut]
    return tuple(splits)


def read_split(split: InputSplit, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yields the split's rows as batches of the table's Arrow schema, the same on each call.

    InvalidRequestError names the file, row and field that do not fit.
    """
    checker = split.make_checker(schema)
    match source_format(split.file, split.options):
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
    file: SourceFile, schema: Schema, refuses_extra_columns: bool, options: SourceOptions
) -> list[_RowGroup] | None:
    """Returns the non-empty row groups of a Parquet file, None for text."""
    if source_format(file, options) is not SourceFormat.PARQUET:
        return None
    checker = RowChecker(
        schema, str(file), None, refuses_extra_columns=refuses_extra_columns, options=options
    )
    parquet = open_parquet(file, checker)
    if parquet is None:
        return []
    warn_of_extra_columns(file, parquet, schema)
    row_groups = []
    with parquet:
        for position in range(parquet.metadata.num_row_groups):
            group: pq.RowGroupMetaData = parquet.metadata.row_group(position)
            if group.num_rows:
                row_groups.append(_RowGroup(position, group.num_rows, group.total_byte_size))
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


_KEYS_MAX = 200_000
_KEYS_PER_SPLIT_MIN = 16
_ROW_GROUPS_READ = 2
_KEY_BATCH_ROWS = 65_536
_SIZED_ROWS = 1024


@dataclass(frozen=True, slots=True)
class SplitSample:
    """A split's number of rows, estimated bytes in memory, and evenly spaced row keys."""

    rows: int
    bytes: int
    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class KeySample:
    """The sample of the whole input. Each key has its number of rows as weight; keys ascend."""

    rows: int
    bytes: int
    weighted: tuple[tuple[Key, float], ...]


def keys_per_split(splits: int) -> int:
    """Returns the number of keys per split, limited by the driver's memory."""
    return max(_KEYS_MAX // max(splits, 1), _KEYS_PER_SPLIT_MIN)


def sample_split(split: InputSplit, schema: Schema, keys_max: int) -> SplitSample:
    """Samples a split. Reads the footer and some keys of Parquet, and all of a text file.

    InvalidRequestError if the input is unreadable, or a row of text does not fit.
    """
    sampler = KeySampler(schema)
    rows = size = 0
    if split.rows is not None:
        rows, size = split.rows, _sample_parquet(split, split.rows, schema, sampler)
    else:
        for batch in read_split(split, schema):
            rows, size = rows + batch.num_rows, size + batch.nbytes
            sampler.add(batch)
    keys = list(zip(*sampler.samples(), strict=True))
    stride = -(-len(keys) // keys_max) or 1
    return SplitSample(rows, size, tuple(keys[::stride]))


def combine_samples(samples: Iterable[SplitSample]) -> KeySample:
    """Combines the samples of all splits."""
    rows = size = 0
    weighted: list[tuple[Key, float]] = []
    for sample in samples:
        rows, size = rows + sample.rows, size + sample.bytes
        weighted += [(key, sample.rows / len(sample.keys)) for key in sample.keys]
    weighted.sort(key=lambda each: each[0])
    return KeySample(rows, size, tuple(weighted))


def _sample_parquet(split: InputSplit, rows: int, schema: Schema, sampler: KeySampler) -> int:
    """Samples keys of some row groups. Returns the estimated bytes of the split in memory."""
    groups = split.row_groups or ()
    read = sorted({groups[i * len(groups) // _ROW_GROUPS_READ] for i in range(_ROW_GROUPS_READ)})
    names = [f.name for f in schema.row_keys]
    parquet = open_parquet(split.file, split.make_checker(schema))
    if parquet is None:
        return 0
    try:
        with parquet:
            first = next(parquet.iter_batches(_SIZED_ROWS, row_groups=read[:1]))
            for batch in parquet.iter_batches(_KEY_BATCH_ROWS, row_groups=read, columns=names):
                for keys in _keys(batch, schema):
                    sampler.add(keys)
    except UNREADABLE as error:
        raise classify_error(
            error, f"file {split.file}: cannot be read: {error}", InvalidRequestError
        ) from error
    return int(first.nbytes * rows / max(first.num_rows, 1))


def _keys(batch: pa.RecordBatch, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yields the row keys that fit. The task that reads the rows reports the others."""
    names: Sequence[str] = [f.name for f in schema.row_keys]
    columns = [cast_key_column(batch.column(f.name), f)[0] for f in schema.row_keys]
    keys = pa.RecordBatch.from_arrays(columns, names).drop_null()
    if keys.num_rows:
        yield keys
