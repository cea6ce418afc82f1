"""Writes the row keys of a delete, sorted, each once, as a key file."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from sleeper.datafiles.arrow import as_plain
from sleeper.datafiles.merge.key_runs import run_starts
from sleeper.datafiles.merge.sort import RowSort
from sleeper.datafiles.write.file import DataFileWriter, FileSettings
from sleeper.files import KeyFile
from sleeper.partitions.region import Range, Region
from sleeper.schema.model import Schema, next_key_value
from sleeper.storage.location import DataRoot

_ROW_GROUP_KEYS = 20_000


def write_key_file(
    root: DataRoot,
    path: str,
    keys: RowSort,
    settings: FileSettings,
    on_keys: Callable[[int], object] = lambda _: None,
) -> KeyFile | None:
    """Sorts the keys and writes each once, durably. None if there is none.

    `keys` have the schema of `keys_schema`. `on_keys` receives numbers of written keys.
    """
    settings = replace(settings, row_group_rows_max=_ROW_GROUP_KEYS, filter_bits_per_key=0)
    batches = _distinct(keys.batches(), keys.schema)
    first = next(batches, None)
    if first is None:
        return None
    writer = DataFileWriter(root, path, keys.schema, settings)
    try:
        for batch in itertools.chain((first,), batches):
            writer.write([batch])
            on_keys(batch.num_rows)
        file = writer.finish()
    except BaseException:
        writer.abandon()
        raise
    bounds = zip(keys.schema.row_keys, file.smallest_key, file.largest_key, strict=True)
    region = Region(tuple(Range(low, next_key_value(field, high)) for field, low, high in bounds))
    return KeyFile(path, file.rows, file.bytes, region, file.sidecars)


def _distinct(batches: Iterator[pa.RecordBatch], schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yields the first row of each key of sorted batches."""
    names = [field.name for field in schema.row_keys]
    last: list[pa.Array] | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        columns = [as_plain(batch.column(name)) for name in names]
        starts = run_starts(columns)
        if last is not None and all(
            end[0].equals(column[0]) for end, column in zip(last, columns, strict=True)
        ):
            starts = starts[1:]
        last = [column.slice(len(column) - 1) for column in columns]
        if len(starts):
            taken = [column.take(pa.array(starts)) for column in columns]
            yield pa.RecordBatch.from_arrays(taken, names)
