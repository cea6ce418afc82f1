"""Rows of a table as keys and values of a store."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.adjunct.contents.keys import KeyCodec, encode_key_columns
from sleeper.adjunct.contents.values import ValueCodec
from sleeper.adjunct.definition import Layout, Partition, StoreDefinition, StoredField
from sleeper.adjunct.engines.engine import DeletedRange, Writes
from sleeper.adjunct.extraction import Envelope, Extract
from sleeper.datafiles.arrow import arrow_type
from sleeper.datafiles.sidecars.row_hashes import hash_rows
from sleeper.errors import DataError, InvalidRequestError
from sleeper.partitions.region import Region
from sleeper.schema.key_values import plain_key_value
from sleeper.schema.model import Field, PrimitiveType, Schema

_BATCH_ROWS = 4_096
"""The number of rows that are converted at once: other threads wait for less than 1 ms."""


class RowWriter(Protocol):
    """Makes writes of rows of one schema.

    `is_sorted` means that `put_all` yields keys in strictly ascending order for rows in key order.
    `origin` says in errors where the rows come from: a transaction or dataset.
    """

    is_sorted: bool
    origin: str

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


def own_rows(definition: StoreDefinition) -> MakeRowWriter:
    """Returns what makes the writers of a store with the rows' own keys."""
    return partial(KeyedRows, definition.name, partition=definition.partition)


class KeyedRows:
    """The writer of stores with the rows' own keys: the row key, and all other fields as value."""

    is_sorted = True

    def __init__(self, store: str, schema: Schema, partition: Partition | None = None) -> None:
        self.origin = ""
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
        return self._layout

    def put_all(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Writes]:
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
        for part in _slices(self._select(rows)):
            keys = self._keys.encode_rows(_columns(part, self._key_names))
            yield Writes(keys, self._encode_values(part))

    def delete(self, keys: pa.RecordBatch) -> Iterator[Writes]:
        for part in _slices(keys):
            encoded = self._keys.encode_rows(_columns(part, self._key_names))
            yield Writes(encoded, [None] * len(encoded))

    def delete_region(self, region: Region) -> Writes | None:
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


_ROW = "row"
_TYPES: dict[type, PrimitiveType] = {
    int: PrimitiveType.LONG,
    str: PrimitiveType.STRING,
    bytes: PrimitiveType.BYTE_ARRAY,
}


class DocumentWriter:
    """Makes writes of keys and documents. All keys have the types of the first one.

    `layout` is that of a version to which the writes are added, None if it has none yet. With a
    `partition`, only keys are written whose hash belongs to it.
    """

    def __init__(
        self, store: str, layout: Layout | None = None, partition: Partition | None = None
    ) -> None:
        self._store = store
        self._partition = partition
        self._layout = layout
        self._codec = None if layout is None else KeyCodec(store, layout)

    def layout(self) -> Layout | None:
        """Returns the form of keys and values; None before the first key."""
        return self._layout

    def put(self, pairs: Iterable[tuple[Any, Any, Envelope]]) -> Writes:
        """Returns the writes of keys with their values, and with the origin of each in the input.

        A key of None is ignored, a value of None deletes the key. DataError names the origin of a
        key or value that a store cannot have, or of a key of another type.
        """
        keys: list[bytes] = []
        values: list[bytes | None] = []
        times: list[int | None] = []
        plain: list[Any] = []
        for key, value, origin in pairs:
            if key is None:
                continue
            keys.append(self.encode_key(key, origin))
            values.append(None if value is None else self.encode_value(value, origin))
            times.append(origin.time_ms)
            plain.append(key)
        if self._partition is None or not plain:
            return Writes(keys, values, written_ms=times)
        own = self._find_own(plain, self._partition)
        return Writes(
            [keys[index] for index in own],
            [values[index] for index in own],
            written_ms=[times[index] for index in own],
        )

    def _find_own(self, keys: list[Any], partition: Partition) -> list[int]:
        """Returns the indices of the keys that belong to the partition."""
        assert self._layout is not None
        fields = tuple(Field(each.name, each.type) for each in self._layout.keys)
        columns = [keys] if len(fields) == 1 else list(zip(*keys, strict=True))
        arrays = [
            pa.array(column, arrow_type(field.type))
            for column, field in zip(columns, fields, strict=True)
        ]
        names = [field.name for field in fields]
        rows = pa.RecordBatch.from_arrays([*arrays, pa.array(range(len(keys)))], [*names, _ROW])
        own: list[int] = select_partition(rows, Schema(fields), partition)[_ROW].to_pylist()
        return own

    def encode_key(self, key: Any, origin: object) -> bytes:
        """Returns the bytes of a key. DataError names the origin of one that cannot be stored."""
        codec = self._codec
        try:
            if codec is None:
                self._layout = find_layout(key)
                codec = self._codec = KeyCodec(self._store, self._layout)
            return codec.encode(key)
        except InvalidRequestError as error:
            prefix = f"store {self._store!r}"
            problem = str(error).removeprefix(f"{prefix}: ")
            raise DataError(f"{prefix}: {origin}: {problem}") from error

    def encode_value(self, value: Any, origin: object) -> bytes:
        """Returns the bytes of a value. DataError as `encode_key`."""
        try:
            return ValueCodec.encode_document(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise DataError(
                f"store {self._store!r}: {origin}: value of type {type(value).__name__}: {error} "
                "(expected text, numbers, bytes, times, lists and mappings of them)"
            ) from error


def find_layout(key: Any) -> Layout:
    """Returns the layout of documents with keys as this one. InvalidRequestError for other types.

    A key is an integer, text, bytes, or a tuple of them.
    """
    values = key if isinstance(key, tuple) else (key,)
    types = [_TYPES.get(type(each)) for each in values]
    if not types or None in types:
        raise InvalidRequestError(
            f"key {key!r:.100} (expected an integer, text, bytes, or a tuple of them)"
        )
    names = ["key"] if len(types) == 1 else [f"key{number}" for number in range(1, len(types) + 1)]
    fields = (StoredField(n, t) for n, t in zip(names, types, strict=True) if t is not None)
    return Layout(tuple(fields), None)


_OBJECTS_MAX = 1_024


class ExtractedRows:
    """The writer of stores with an extractor. See `RowWriter`.

    The key of a row's envelope is its row key, a tuple if that has several fields, and its value
    has all other fields. A row that is deleted has no value.
    """

    is_sorted = False

    def __init__(
        self,
        definition: StoreDefinition,
        extract: Extract,
        find_layout: Callable[[], Layout | None],
        schema: Schema,
    ) -> None:
        self.origin = ""
        self._definition = definition
        self._find_layout = find_layout
        self._schema = schema
        self._extract = extract
        self._key_names = [each.name for each in schema.row_keys]
        self._writer: DocumentWriter | None = None

    def layout(self) -> Layout | None:
        return None if self._writer is None else self._writer.layout()

    def put_all(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Writes]:
        self._writer = DocumentWriter(self._definition.name)
        for rows in batches:
            yield from self.put(rows)

    def put(self, rows: pa.RecordBatch) -> Iterator[Writes]:
        selected = select_partition(rows, self._schema, self._definition.partition)
        for start in range(0, selected.num_rows, _OBJECTS_MAX):
            part = selected.slice(start, _OBJECTS_MAX).to_pylist()
            yield self._convert((self._take_key(row), row) for row in part)

    def delete(self, keys: pa.RecordBatch) -> Iterator[Writes]:
        selected = select_partition(keys, self._schema, self._definition.partition)
        named = selected.select(self._key_names)
        for start in range(0, named.num_rows, _OBJECTS_MAX):
            part = named.slice(start, _OBJECTS_MAX).to_pylist()
            yield self._convert((self._take_key(row), None) for row in part)

    def delete_region(self, region: Region) -> Writes | None:
        del region
        return None

    def _take_key(self, row: dict[str, Any]) -> Any:
        """Removes the row key from the row, and returns it."""
        values = tuple(row.pop(name) for name in self._key_names)
        return values if len(values) > 1 else values[0]

    def _convert(self, pairs: Iterable[tuple[Any, dict[str, Any] | None]]) -> Writes:
        if self._writer is None:
            self._writer = DocumentWriter(self._definition.name, self._find_layout())
        make = partial(Envelope, self._definition.input, "0", self.origin, self.origin)
        envelopes = (make(key, value) for key, value in pairs)
        return self._writer.put((*self._extract(each), each) for each in envelopes)
