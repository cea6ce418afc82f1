"""Sets of keys of bounded size, with which rows are found again at another version."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sleeper.datafiles.key_values import key_values
from sleeper.datafiles.sidecars.row_hashes import hash_rows
from sleeper.partitions.region import Region
from sleeper.query.request import regions_of_keys
from sleeper.schema.model import Field, Schema

_KEY_REGIONS_MAX = 1_000
_HASHES_MAX = 8 * 1024**2

Hashes = npt.NDArray[np.uint64]


class KeySet:
    """A set of keys by their hashes, of bounded size: a key may be in it without being added."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._schema = Schema(tuple(Field(each.name, each.type) for each in fields))
        self._parts: list[Hashes] = []
        self._count = 0
        self._is_full = False

    def add(self, rows: pa.RecordBatch) -> None:
        if self._is_full or not rows.num_rows:
            return
        self._parts.append(np.unique(hash_rows(self._schema, [rows])))
        self._count += len(self._parts[-1])
        if self._count > _HASHES_MAX:
            self._parts = [self._merged()]
            self._count = len(self._parts[0])
            self._is_full = self._count > _HASHES_MAX // 2

    def filter(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows whose key was added, and maybe some others."""
        if self._is_full or not rows.num_rows:
            return rows
        if len(self._parts) != 1:
            self._parts = [self._merged()]
        keys, hashes = self._parts[0], hash_rows(self._schema, [rows])
        positions = np.minimum(np.searchsorted(keys, hashes), max(len(keys) - 1, 0))
        is_known = keys[positions] == hashes if len(keys) else np.zeros(len(hashes), np.bool_)
        return rows if is_known.all() else rows.filter(pa.array(is_known))

    def _merged(self) -> Hashes:
        return np.unique(np.concatenate([*self._parts, np.empty(0, np.uint64)]))


class RowKeys:
    """The row keys of some rows: regions that contain them, and the keys in these regions.

    The regions are exact for few keys. For more there is one, of which `filter` keeps the rows.
    """

    def __init__(self, schema: Schema, bounds: Sequence[Region]) -> None:
        self._schema = schema
        self._bounds = bounds
        self._names = [each.name for each in schema.row_keys]
        self._keys: dict[tuple[Any, ...], None] = {}
        self._set = KeySet(schema.row_keys)
        self.are_listed = True

    def add(self, rows: pa.RecordBatch) -> None:
        self._set.add(rows)
        if self.are_listed:
            distinct = pa.Table.from_batches([rows]).select(self._names).group_by(self._names)
            result = distinct.aggregate([]).slice(0, _KEY_REGIONS_MAX + 1)
            columns = (key_values(each.combine_chunks()) for each in result.columns)
            self._keys |= dict.fromkeys(zip(*columns, strict=True))
            if len(self._keys) > _KEY_REGIONS_MAX:
                self._keys, self.are_listed = {}, False

    @property
    def regions(self) -> Sequence[Region]:
        if not self.are_listed:
            return tuple(self._bounds)
        return regions_of_keys(self._schema, self._keys)

    def filter(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows of the keys, and maybe some others if the regions are not exact."""
        return rows if self.are_listed else self._set.filter(rows)
