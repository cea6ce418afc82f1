"""A sample of the input's keys: where to cut the tree, and the work."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sleeper.bulk_import.splits import InputSplit, read_split
from sleeper.datafiles.arrow import cast_column
from sleeper.datafiles.sources.files import RowChecker
from sleeper.datafiles.sources.parquet import UNREADABLE, open_parquet
from sleeper.datafiles.write.key_sampler import KeySampler
from sleeper.errors import InvalidRequestError, classify_error
from sleeper.schema.model import Key, Schema

_KEYS_MAX = 200_000
_KEYS_PER_SPLIT_MIN = 16
_ROW_GROUPS_READ = 2
_KEY_BATCH_ROWS = 65_536
_SIZED_ROWS = 1024


@dataclass(frozen=True, slots=True)
class SplitSample:
    """A split's rows, their bytes in memory by estimate, and row keys of evenly spaced ones."""

    rows: int
    bytes: int
    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class KeySample:
    """Of the whole input. Each key stands for so many rows; they come in order."""

    rows: int
    bytes: int
    weighted: tuple[tuple[Key, float], ...]


def keys_per_split(splits: int) -> int:
    """How many keys of each are enough, so that the driver can hold those of all."""
    return max(_KEYS_MAX // max(splits, 1), _KEYS_PER_SPLIT_MIN)


def sample_split(split: InputSplit, schema: Schema, keys_max: int) -> SplitSample:
    """Of Parquet some keys are read, and rows counted by the footer; text is read whole.

    InvalidRequestError if what is read cannot be: text that does not fit is found here.
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


def joined_sample(samples: Iterable[SplitSample]) -> KeySample:
    """One of all splits."""
    rows = size = 0
    weighted: list[tuple[Key, float]] = []
    for sample in samples:
        rows, size = rows + sample.rows, size + sample.bytes
        weighted += [(key, sample.rows / len(sample.keys)) for key in sample.keys]
    weighted.sort(key=lambda each: each[0])
    return KeySample(rows, size, tuple(weighted))


def _sample_parquet(split: InputSplit, rows: int, schema: Schema, sampler: KeySampler) -> int:
    """Adds keys of some row groups; about how many bytes the split takes in memory."""
    groups = split.row_groups or ()
    read = sorted({groups[i * len(groups) // _ROW_GROUPS_READ] for i in range(_ROW_GROUPS_READ)})
    names = [f.name for f in schema.row_keys]
    parquet = open_parquet(split.file, RowChecker(schema, str(split.file), None))
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
    """The row keys; those that do not fit are left to the task that reads all of the rows."""
    names: Sequence[str] = [f.name for f in schema.row_keys]
    columns = [cast_column(batch.column(f.name), f)[0] for f in schema.row_keys]
    keys = pa.RecordBatch.from_arrays(columns, names).drop_null()
    if keys.num_rows:
        yield keys
