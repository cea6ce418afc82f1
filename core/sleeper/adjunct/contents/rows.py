"""Rows of a table as keys and values of a store."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.adjunct.contents.keys import KeyCodec, encode_key_columns
from sleeper.adjunct.contents.values import ValueCodec
from sleeper.adjunct.contents.writes import DeletedRange, Writes
from sleeper.adjunct.definition import Partition
from sleeper.adjunct.store_state import Layout, StoredField
from sleeper.datafiles.sidecars.row_hashes import hash_rows
from sleeper.partitions.region import Region
from sleeper.schema.key_values import plain_key_value
from sleeper.schema.model import Schema

_BATCH_ROWS = 4_096
"""The number of rows that are converted at once: other threads wait for less than 1 ms."""


class RowWriter(Protocol):
    """Makes writes of rows of one schema.

    `is_sorted` means that `put_all` yields keys in strictly ascending order for rows in key order.
    `place` says in errors where the rows come from: a transaction or dataset.
    """

    is_sorted: bool
    place: str

    def layout(self) -> Layout | None:
        """Returns the form of keys and values; None until the first, if it follows from them."""

    def put_all(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Writes]:
        """Yields the writes of all rows, in key order, of which the last of a key counts."""

    def put(self, rows: pa.RecordBatch) -> Iterator[Writes]:
        """Yields the writes of some rows, of which the last of a key counts."""

    def delete(self, keys: pa.RecordBatch) -> Iterator[Writes]:
        """Yields the writes that delete keys. The batch has the row key fields."""

    def delete_region(self, region: Region) -> Writes | None:
        """Returns the writes that delete all keys of a region; None if the keys must be known."""


MakeRowWriter = Callable[[Schema], RowWriter]


class KeyedRows:
    """The writer of stores with the rows' own keys: the row key, and all other fields as value."""

    is_sorted = True

    def __init__(self, store: str, schema: Schema, partition: Partition | None = None) -> None:
        self.place = ""
        self._schema = schema
        self._partition = partition
        keys = tuple(StoredField(each.name, each.type) for each in schema.row_keys)
        others = (*schema.sort_keys, *schema.values)
        self._layout = Layout(keys, tuple(StoredField(each.name, each.type) for each in others))
        self._keys = KeyCodec(store, self._layout)
        self._values = ValueCodec(self._layout)
        self._key_names = [each.name for each in schema.row_keys]
        self._value_names = [each.name for each in others]

    def layout(self) -> Layout | None:
        """See the protocol."""
        return self._layout

    def put_all(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Writes]:
        """See the protocol."""
        if not self._schema.sort_keys and self._schema.latest is not None:
            for rows in batches:
                yield from self.put(rows)
            return
        # The last row of a batch may have the key of the next batch's first.
        key, value = None, b""
        for rows in batches:
            for part in _slices(self._select(rows)):
                keys = encode_key_columns(_columns(part, self._key_names), self._keys.types)
                values = self._encode_values(part)
                is_last = pc.not_equal(keys.slice(0, len(keys) - 1), keys.slice(1)).to_pylist()
                listed = keys.to_pylist()
                last_keys = [k for k, is_end in zip(listed, is_last, strict=False) if is_end]
                last_values = [v for v, is_end in zip(values, is_last, strict=False) if is_end]
                if key is not None and key != listed[0]:
                    last_keys.insert(0, key)
                    last_values.insert(0, value)
                key, value = listed[-1], values[-1]
                yield Writes(last_keys, last_values)
        if key is not None:
            yield Writes([key], [value])

    def put(self, rows: pa.RecordBatch) -> Iterator[Writes]:
        """See the protocol."""
        for part in _slices(self._select(rows)):
            keys = self._keys.encode_rows(_columns(part, self._key_names))
            yield Writes(keys, self._encode_values(part))

    def delete(self, keys: pa.RecordBatch) -> Iterator[Writes]:
        """See the protocol."""
        for part in _slices(keys):
            found = self._keys.encode_rows(_columns(part, self._key_names))
            yield Writes(found, [None] * len(found))

    def delete_region(self, region: Region) -> Writes | None:
        """See the protocol."""
        if len(region.ranges) > 1:
            return None
        bounds = region.ranges[0]
        field = self._schema.row_keys[0]
        low, high = (
            None if end is None else self._keys.encode_bound(plain_key_value(field, end))
            for end in (bounds.min, bounds.max)
        )
        assert low is not None
        return Writes(deleted_ranges=(DeletedRange(low, high),))

    def _encode_values(self, rows: pa.RecordBatch) -> list[bytes]:
        return self._values.encode_rows(_columns(rows, self._value_names), rows.num_rows)

    def _select(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return select_partition(rows, self._schema, self._partition)


def select_partition(
    rows: pa.RecordBatch, schema: Schema, partition: Partition | None
) -> pa.RecordBatch:
    """Returns the rows whose row key belongs to the partition."""
    if partition is None or not rows.num_rows:
        return rows
    # Spark's xxhash64 is signed, and its pmod is the remainder of the signed number.
    hashes = hash_rows(schema, [rows]).view(np.int64)
    return rows.filter(pa.array(np.mod(hashes, partition.count) == partition.index))


def _columns(rows: pa.RecordBatch, names: Sequence[str]) -> list[pa.Array]:
    return [rows.column(name) for name in names]


def _slices(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows.num_rows, _BATCH_ROWS):
        yield rows.slice(start, _BATCH_ROWS)
