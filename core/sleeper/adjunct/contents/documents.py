"""Keys and values of messages, whose types follow from the data and not from a schema."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from sleeper.adjunct.contents.keys import KeyCodec
from sleeper.adjunct.contents.rows import select_partition
from sleeper.adjunct.contents.values import ValueCodec
from sleeper.adjunct.contents.writes import Writes
from sleeper.adjunct.definition import Partition
from sleeper.adjunct.store_state import Layout, StoredField
from sleeper.datafiles.arrow import arrow_type
from sleeper.errors import DataError, InvalidRequestError
from sleeper.schema.model import Field, PrimitiveType, Schema

_PLACE = "place"
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

    def put(self, pairs: Iterable[tuple[Any, Any, object]]) -> Writes:
        """Returns the writes of keys with their values, and with the place of each in the input.

        A key of None is ignored, a value of None deletes the key. DataError names the place of a
        key or value that a store cannot have, or of a key of another type.
        """
        keys: list[bytes] = []
        values: list[bytes | None] = []
        plain: list[Any] = []
        for key, value, place in pairs:
            if key is None:
                continue
            keys.append(self._encode_key(key, place))
            values.append(None if value is None else self._encode_value(value, place))
            plain.append(key)
        if self._partition is None or not plain:
            return Writes(keys, values)
        own = self._find_own(plain, self._partition)
        return Writes([keys[place] for place in own], [values[place] for place in own])

    def _find_own(self, keys: list[Any], partition: Partition) -> list[int]:
        """Returns the places of the keys that belong to the partition."""
        assert self._layout is not None
        fields = tuple(Field(each.name, each.type) for each in self._layout.keys)
        columns = [keys] if len(fields) == 1 else list(zip(*keys, strict=True))
        arrays = [
            pa.array(column, arrow_type(field.type))
            for column, field in zip(columns, fields, strict=True)
        ]
        names = [field.name for field in fields]
        rows = pa.RecordBatch.from_arrays([*arrays, pa.array(range(len(keys)))], [*names, _PLACE])
        found: list[int] = select_partition(rows, Schema(fields), partition)[_PLACE].to_pylist()
        return found

    def _encode_key(self, key: Any, place: object) -> bytes:
        codec = self._codec
        try:
            if codec is None:
                self._layout = find_layout(key)
                codec = self._codec = KeyCodec(self._store, self._layout)
            return codec.encode(key)
        except InvalidRequestError as error:
            prefix = f"store {self._store!r}"
            problem = str(error).removeprefix(f"{prefix}: ")
            raise DataError(f"{prefix}: {place}: {problem}") from error

    def _encode_value(self, value: Any, place: object) -> bytes:
        try:
            return ValueCodec.encode_document(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise DataError(
                f"store {self._store!r}: {place}: value of type {type(value).__name__}: {error} "
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
    names = ["key"] if len(types) == 1 else [f"key{place}" for place in range(1, len(types) + 1)]
    fields = (StoredField(n, t) for n, t in zip(names, types, strict=True) if t is not None)
    return Layout(tuple(fields), None)
