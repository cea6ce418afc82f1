"""A sample of the input's keys, which determines the cuts of the tree and of the work."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sleeper.bulk_import.splits import InputSplit, read_split
from sleeper.datafiles.arrow import cast_column
from sleeper.datafiles.sources.files import RowChecker
from sleeper.datafiles.sources.parquet import UNREADABLE, open_parquet
from sleeper.datafiles.write.key_facts import KeySampler
from sleeper.errors import InvalidRequestError, classify_error
from sleeper.schema.model import Key, Schema

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
    """Yields the row keys that fit. The task that reads the rows reports the others."""
    names: Sequence[str] = [f.name for f in schema.row_keys]
    columns = [cast_column(batch.column(f.name), f)[0] for f in schema.row_keys]
    keys = pa.RecordBatch.from_arrays(columns, names).drop_null()
    if keys.num_rows:
        yield keys
