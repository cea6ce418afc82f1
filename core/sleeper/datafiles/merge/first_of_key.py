"""The first row of each key, in rows in key order."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import as_plain
from sleeper.datafiles.conversions import as_booleans, boolean_array
from sleeper.datafiles.key_values import key_value
from sleeper.datafiles.merge.deletes import OnDropped
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import Schema


class FirstOfKey:
    """Finds the first row of each key in rows in key order, batch by batch, once.

    `on_dropped` receives numbers of other rows, and `dropped` is their sum.
    """

    def __init__(self, on_dropped: OnDropped = lambda _: None) -> None:
        self._last: tuple[object, ...] | None = None
        self._on_dropped = on_dropped
        self.dropped = 0

    def find_rows(self, deleted: pa.Array, *keys: pa.Array) -> pa.Array:
        """Returns whether each row is the first of its key, and no tombstone."""
        is_first = self.find(*keys)
        if deleted.null_count == len(deleted):
            return is_first
        return pc.and_not(is_first, pc.fill_null(deleted, False))

    def find(self, *keys: pa.Array) -> pa.Array:
        """Returns whether each row is the first of its key, from its key columns."""
        rows = len(keys[0])
        if not rows:
            return boolean_array(np.zeros(0, np.bool_))
        is_first = np.zeros(rows, np.bool_)
        for values in map(as_plain, keys):
            if rows > 1:
                is_first[1:] |= _differences(values.slice(1), values.slice(0, rows - 1))
        is_first[0] = self._last is None or self._last != _key_at(keys, 0)
        self._last = _key_at(keys, rows - 1)
        dropped = rows - int(np.count_nonzero(is_first))
        self.dropped += dropped
        self._on_dropped(dropped)
        return boolean_array(is_first)


def _differences(left: pa.Array, right: pa.Array) -> npt.NDArray[np.bool_]:
    differs = pc.not_equal(left, right)
    if differs.null_count:
        differs = pc.fill_null(differs, pc.xor(pc.is_null(left), pc.is_null(right)))
    return as_booleans(differs)


def _key_at(keys: Sequence[pa.Array], row: int) -> tuple[object, ...]:
    return tuple(key_value(values[row]) for values in keys)


def keep_first(
    in_order: Iterable[pa.RecordBatch], schema: Schema, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yields the columns of the first row of each key, of rows in key order."""
    first = FirstOfKey()
    for batch in in_order:
        dropped = first.dropped
        is_first = first.find(*(batch.column(field.name) for field in schema.keys))
        kept = batch.select(columns)
        yield kept if first.dropped == dropped else _filter(kept, is_first)


def refuse_ties(in_order: Iterable[pa.RecordBatch], schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yields rows in the order of keys and rank. InvalidRequestError if two have the same rank."""
    by = None if schema.latest is None else schema.latest.by
    names = [*(field.name for field in schema.keys), *([] if by is None else [by])]
    first = FirstOfKey()
    for batch in in_order:
        ranks = batch.select(names)
        is_first = first.find(*ranks.columns)
        if first.dropped:
            row = ranks.slice(pc.index(is_first, False).as_py(), 1).to_pylist()[0]
            raise tie_error(row)
        yield batch


def tie_error(row: Mapping[str, object]) -> InvalidRequestError:
    """Returns the error of a key that several rows have, in an order that is not known."""
    text = ", ".join(f"{name} {value!r}" for name, value in row.items())
    return InvalidRequestError(
        f"several rows with {text}: none is the newest, because the rows of this job have no order "
        "(expected one row of each key, or a table with the property sleeper.table.latest.by and "
        "different values of that field)"
    )


def _filter(batch: pa.RecordBatch, is_kept: pa.Array) -> pa.RecordBatch:
    """Filters a batch, of which Arrow has no kernels for views."""
    columns = [as_plain(each).filter(is_kept) for each in batch.columns]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)
