"""All values of a version as columns, with an index of its keys: a *view*.

Many lookups of keys in a version cost less in a view than in its engine. A view of a version on
disk is a folder `columns-<digest>` in that of the version, and is mapped into the memory of all
processes that read it. The digest is that of the version's state, because a version may change.
"""

import hashlib
import shutil
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.adjunct.columns.key_index import (
    Places,
    Slots,
    build_slots,
    find_places,
    hash_contents,
    hash_numbers,
)
from sleeper.adjunct.columns.values import ValueColumns
from sleeper.adjunct.contents.keys import decode_number_keys, encode_key_columns
from sleeper.adjunct.definition import Layout, encode_state
from sleeper.adjunct.versions.version import StoreVersion
from sleeper.datafiles.key_values import as_key_column
from sleeper.errors import UnavailableError
from sleeper.schema.model import PrimitiveType
from sleeper.storage.disk import locking_file, sync_file

_ROWS = 65_536
_KEY = "~key"
_VALUES_FILE, _SLOTS_FILE = "values.arrow", "slots.npy"
_PREFIX = "columns-"
_LOCK = "columns.lock"


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
        is_valid = np.logical_and.reduce(
            [each.is_valid().to_numpy(zero_copy_only=False) for each in keys]
        )
        if not is_valid.all():
            keys = [_fill_nulls(as_key_column(each)) for each in keys]
        found = self._find_number(keys[0]) if self._numbers is not None else self._find_bytes(keys)
        return pa.array(found, mask=~is_valid | (found < 0))

    def _find_number(self, column: pa.Array) -> Slots:
        numbers = column.cast(pa.int64()).to_numpy()
        stored = self._numbers
        assert stored is not None

        def are_equal(rows: Places, places: Slots) -> npt.NDArray[np.bool_]:
            equal: npt.NDArray[np.bool_] = stored[places] == numbers[rows]
            return equal

        return find_places(self._slots, hash_numbers(numbers), are_equal)

    def _find_bytes(self, columns: Sequence[pa.Array]) -> Slots:
        contents = encode_key_columns(columns, self._types)

        def are_equal(rows: Places, places: Slots) -> npt.NDArray[np.bool_]:
            equal = pc.equal(self._keys.take(pa.array(places)), contents.take(pa.array(rows)))
            return equal.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

        return find_places(self._slots, hash_contents(contents), are_equal)

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
            found = find_view(version)
            if found is not None:
                return found
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
    found = find_view(version)
    assert found is not None
    return found


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
