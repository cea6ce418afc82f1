"""Lookups of whole columns of keys in a version of a store.

The distinct keys of a batch are looked up once, and their values become columns at once. After
many lookups in a version that does not change, all of its values are kept as columns, with an index
of its keys: a *view*. The view of a version on disk is a folder `columns-<digest>` in that of the
version, and is mapped into the memory of all processes that read it. The digest is that of the
version's state, because a version may change.
"""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.adjunct.columns.key_index import (
    Rows,
    Slots,
    build_slots,
    find_rows,
    hash_contents,
    hash_numbers,
)
from sleeper.adjunct.columns.values import ValueColumns
from sleeper.adjunct.contents.keys import decode_number_keys, encode_key_columns
from sleeper.adjunct.definition import Layout, encode_state
from sleeper.adjunct.versions.version import StoreVersion
from sleeper.datafiles.arrow import arrow_type, as_plain
from sleeper.datafiles.key_values import as_key_column
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.schema.model import PrimitiveType
from sleeper.storage.disk import locking_file, sync_file

_ROWS = 65_536
_KEY = "~key"
_VALUES_FILE, _SLOTS_FILE = "values.arrow", "slots.npy"
_PREFIX = "columns-"
_LOCK = "columns.lock"

VIEW_BYTES = 1024**3
"""The size of a version up to which its values are kept as columns."""

# A view costs about as much as so many lookups of a version's bytes.
_READ_BEFORE_VIEW = 0.25


class ColumnView:
    """The values of all keys, as columns. `values` has a row for each key."""

    def __init__(
        self, layout: Layout, keys: pa.Array, values: pa.RecordBatch, slots: Slots
    ) -> None:
        self._types = layout.key_types()
        self._slots = slots
        self._keys = keys
        self._numbers = keys.to_numpy() if pa.types.is_integer(keys.type) else None
        self.values = values

    def find(self, keys: Sequence[pa.Array]) -> pa.Array:
        """Returns the row of each key, null for one that is not in the store or has a null.

        The columns have the types of the key fields.
        """
        is_valid = _are_valid(keys)
        if not is_valid.all():
            keys = [_fill_nulls(as_key_column(each)) for each in keys]
        matches = (
            self._find_number(keys[0]) if self._numbers is not None else self._find_bytes(keys)
        )
        return pa.array(matches, mask=~is_valid | (matches < 0))

    def _find_number(self, column: pa.Array) -> Slots:
        numbers = column.cast(pa.int64()).to_numpy()
        stored = self._numbers
        assert stored is not None

        def are_equal(rows: Rows, indices: Slots) -> npt.NDArray[np.bool_]:
            equal: npt.NDArray[np.bool_] = stored[indices] == numbers[rows]
            return equal

        return find_rows(self._slots, hash_numbers(numbers), are_equal)

    def _find_bytes(self, columns: Sequence[pa.Array]) -> Slots:
        contents = encode_key_columns(columns, self._types)

        def are_equal(rows: Rows, indices: Slots) -> npt.NDArray[np.bool_]:
            equal = pc.equal(self._keys.take(pa.array(indices)), contents.take(pa.array(rows)))
            return equal.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

        return find_rows(self._slots, hash_contents(contents), are_equal)

    def save(self, folder: Path) -> None:
        """Writes the view to a new folder."""
        folder.mkdir()
        fields = [pa.field(_KEY, self._keys.type), *self.values.schema]
        batch = pa.RecordBatch.from_arrays(
            [self._keys, *self.values.columns], schema=pa.schema(fields)
        )
        with pa.ipc.new_file(str(folder / _VALUES_FILE), batch.schema) as file:
            file.write_batch(batch)
        np.save(folder / _SLOTS_FILE, self._slots)


def build_view(store: str, version: StoreVersion) -> ColumnView:
    """Reads all keys and values of a version, which must not change meanwhile."""
    layout = version.state.layout
    assert layout is not None
    codec = ValueColumns(store, layout)
    kind = layout.keys[0].type
    is_number = len(layout.keys) == 1 and kind in (PrimitiveType.INT, PrimitiveType.LONG)
    key_type = pa.int64() if is_number else pa.binary()
    keys, values = [pa.array([], key_type)], [pa.RecordBatch.from_pylist([], codec.schema)]
    pairs = version.all_contents()
    while chunk := list(islice(pairs, _ROWS)):
        contents = pa.array([key for key, _ in chunk], pa.binary())
        keys.append(decode_number_keys(contents, kind) if is_number else contents)
        values.append(codec.decode(pa.array([value for _, value in chunk], pa.large_binary())))
    all_keys = pa.concat_arrays(keys)
    hashes = hash_numbers(all_keys.to_numpy()) if is_number else hash_contents(all_keys)
    return ColumnView(layout, all_keys, pa.concat_batches(values), build_slots(hashes))


def open_view(store: str, version: StoreVersion) -> ColumnView:
    """Returns the view of a version that does not change, which one process of the machine builds.

    UnavailableError if the disk is full.
    """
    if version.folder is None:
        return build_view(store, version)
    try:
        with locking_file(version.folder / _LOCK):
            view = find_view(version)
            if view is not None:
                return view
            for each in version.folder.glob(f"{_PREFIX}*"):
                shutil.rmtree(each, ignore_errors=True)  # of an earlier state, or not complete
            folder = _view_folder(version.folder, version)
            made = folder.with_suffix(".new")
            build_view(store, version).save(made)
            for each in made.iterdir():
                sync_file(each)  # the name must not be older than the content
            made.rename(folder)
    except OSError as error:
        raise UnavailableError(
            f"store {store!r}: cannot write columns to {version.folder}: {error.strerror}"
        ) from error
    view = find_view(version)
    assert view is not None
    return view


def find_view(version: StoreVersion) -> ColumnView | None:
    """Returns the view that a process has built; None if none has."""
    layout = version.state.layout
    if version.folder is None or layout is None:
        return None
    folder = _view_folder(version.folder, version)
    try:
        with pa.memory_map(str(folder / _VALUES_FILE)) as source:
            batch = pa.ipc.open_file(source).get_batch(0)
        slots = np.load(folder / _SLOTS_FILE, mmap_mode="r")
    except FileNotFoundError:
        return None
    return ColumnView(layout, batch.column(0), batch.select(batch.schema.names[1:]), slots)


def _view_folder(folder: Path, version: StoreVersion) -> Path:
    digest = hashlib.sha256(encode_state(version.state)).hexdigest()[:16]
    return folder / f"{_PREFIX}{digest}"


def _fill_nulls(column: pa.Array) -> pa.Array:
    if not column.null_count:
        return column
    return column.fill_null(0 if pa.types.is_integer(column.type) else "")


@dataclass(frozen=True, slots=True)
class Matches:
    """The values of some keys, and whether each key is in the store.

    A row of `values` has nulls for a key that is not. `is_present` has no nulls.
    """

    values: pa.RecordBatch
    is_present: pa.BooleanArray


class ColumnLookup:
    """Looks up columns of keys in a version of a store.

    `key_schema` has the fields of a key, and `schema` those of the values that are returned, all
    nullable. `fields` are their names; None is all. For a store of documents it is an Arrow schema
    of the members to return. With `is_fixed`, the version does not change as long as it is used,
    so after many lookups its values are kept as columns, if they take at most `view_bytes`.

    InvalidRequestError for a field that the values do not have, UnavailableError if the store has
    no data yet, so that its fields are unknown.
    """

    def __init__(
        self,
        store: str,
        version: StoreVersion,
        fields: "pa.Schema | Sequence[str] | None" = None,
        is_fixed: bool = False,
        view_bytes: int = VIEW_BYTES,
    ) -> None:
        layout = version.state.layout
        if layout is None:
            raise UnavailableError(f"store {store!r} has no data yet, so its fields are unknown")
        self._store = store
        self._version = version
        self._keys = KeyColumns(store, layout)
        self._values = ValueColumns(store, layout, fields)
        self.key_schema = self._keys.schema
        self.schema = self._values.schema
        self._view: ColumnView | None = None
        self._read_bytes = 0
        self._bytes_before_view: float | None = None
        if is_fixed and layout.values is not None:
            size = version.engine.size()
            if size <= view_bytes:
                self._bytes_before_view = size * _READ_BEFORE_VIEW
                self._view = find_view(version)

    def lookup(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the values of keys, in their order: nulls for a key that is not in the store.

        The columns of `keys` are the key fields in order, by any names. A key with a null is not
        in the store. InvalidRequestError for columns of other types.
        """
        return self.find(keys).values

    def find(self, keys: pa.RecordBatch) -> Matches:
        """Returns the values of keys, as `lookup`, and which keys are in the store."""
        columns = self._keys.cast(keys)
        if self._view is None and self._is_view_due():
            self._view = open_view(self._store, self._version)
        if self._view is None:
            return self._find_distinct(columns)
        indices = self._view.find(columns)
        values = self._view.values.select(self.schema.names)
        return Matches(values.take(indices), indices.is_valid())

    def _is_view_due(self) -> bool:
        return self._bytes_before_view is not None and self._read_bytes > self._bytes_before_view

    def _find_distinct(self, columns: Sequence[pa.Array]) -> Matches:
        """Looks up the distinct keys in the engine."""
        distinct, indices = self._keys.encode_distinct(columns)
        contents = self._version.get_contents(distinct.to_pylist())
        matches = pa.array(contents, pa.large_binary())
        self._read_bytes += distinct.nbytes + matches.nbytes
        values = self._values.decode(matches.drop_null())
        # The index among the values of each distinct key, and then of each row.
        is_present = matches.is_valid()
        ranks = pc.subtract(pc.cumulative_sum(is_present.cast(pa.int64())), 1)
        taken = pc.if_else(is_present, ranks, pa.scalar(None, pa.int64())).take(indices)
        return Matches(values.take(taken), taken.is_valid())


class KeyColumns:
    """Converts columns of keys to the bytes of a store's keys."""

    def __init__(self, store: str, layout: Layout) -> None:
        self._store = store
        self._types = layout.key_types()
        self.schema = pa.schema(
            [pa.field(each.name, arrow_type(each.type), nullable=False) for each in layout.keys]
        )

    def encode_distinct(self, columns: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
        """Returns the bytes of distinct keys, and the index of each row's key among them.

        The index of a key with a null is null.
        """
        if len(columns) == 1:
            coded = columns[0].dictionary_encode()
            return encode_key_columns([coded.dictionary], self._types), coded.indices
        is_valid = _are_valid(columns)
        kept = [each.filter(pa.array(is_valid)) for each in columns]
        coded = encode_key_columns(kept, self._types).dictionary_encode()
        if is_valid.all():
            return coded.dictionary, coded.indices
        indices = np.zeros(len(is_valid), np.int32)
        indices[is_valid] = coded.indices.to_numpy()
        return coded.dictionary, pa.array(indices, mask=~is_valid)

    def cast(self, keys: pa.RecordBatch) -> list[pa.Array]:
        """Returns the columns with the types of the store's keys."""
        if keys.num_columns != len(self.schema):
            raise InvalidRequestError(
                f"store {self._store!r}: {keys.num_columns} columns of keys (expected "
                f"{len(self.schema)}: {', '.join(self.schema.names)})"
            )
        return [
            self._cast(column, given.name, field)
            for column, given, field in zip(keys.columns, keys.schema, self.schema, strict=True)
        ]

    def _cast(self, column: pa.Array, name: str, field: pa.Field) -> pa.Array:
        column = as_plain(column)
        if column.type == field.type:
            return column
        if not _is_same_kind(column.type, field.type):
            raise InvalidRequestError(
                f"store {self._store!r}: keys in column {name!r} are of type {column.type} "
                f"(expected {field.type}, for key field {field.name!r})"
            )
        try:
            return column.cast(field.type)
        except pa.ArrowInvalid as error:
            raise InvalidRequestError(
                f"store {self._store!r}: column {name!r}: {error} (expected {field.type}, for key "
                f"field {field.name!r})"
            ) from error


def _is_same_kind(given: pa.DataType, expected: pa.DataType) -> bool:
    if pa.types.is_dictionary(given):
        given = given.value_type
    for is_kind in (
        (pa.types.is_integer,),
        (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
    ):
        if any(each(given) for each in is_kind):
            return any(each(expected) for each in is_kind)
    return bool(pa.types.is_null(given))


def _are_valid(columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Returns whether each row has no null."""
    valid = [each.is_valid().to_numpy(zero_copy_only=False) for each in columns]
    are_valid: npt.NDArray[np.bool_] = np.logical_and.reduce(valid)
    return are_valid
