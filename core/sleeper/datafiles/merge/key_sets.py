"""Sets of row keys in key order, and the rows of a batch that have one of the keys.

A batch of a file is in key order too, so its first and last key select a slice of the set, and
the slice is found in the batch by binary search or, if it has many texts, by a hash table.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import as_plain
from sleeper.datafiles.key_values import as_key_column, key_column_type
from sleeper.datafiles.merge.key_runs import is_ascending
from sleeper.schema.model import Key, KeyValue

Mask = npt.NDArray[np.bool_]

# A hash table takes as long as a search for this many texts.
_SEARCHED_TEXTS_MAX = 6
_CODES_MAX = 2**62


@dataclass(frozen=True, slots=True)
class SortedKeys:
    """Row keys, ascending, each once: a column as of `as_key_column` per field, without views.

    `listed` are the same keys as tuples if they are few.
    """

    columns: tuple[pa.Array, ...]
    listed: Sequence[Key] | None = None

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def kept_bytes(self) -> int:
        """The size in memory."""
        return 500 + sum(int(column.nbytes) for column in self.columns)

    def near(self, low: Key, high: Key) -> Iterable["KeyRun"]:
        """Yields the run of all keys, unless they are known to be elsewhere."""
        if self.listed is None or (self.listed[0] <= high and low <= self.listed[-1]):
            yield KeyRun(None, None, lambda: self)

    def between(self, low: Key, high: Key) -> "SortedKeys":
        """Returns the keys from `low` to `high`, both included, and perhaps some others."""
        if self.listed is not None:
            start, stop = bisect_left(self.listed, low), bisect_right(self.listed, high)
            listed = self.listed[start:stop]
        else:
            start, stop, listed = 0, len(self), None
            for column, smallest, largest in zip(self.columns, low, high, strict=True):
                start = _bisect(column, smallest, start, stop)
                if smallest != largest:
                    stop = _bisect(column, largest, start, stop, is_right=True)
                    break
                stop = _run_stop(column, smallest, start, stop)
        if start == 0 and stop == len(self):
            return self
        return SortedKeys(tuple(c.slice(start, stop - start) for c in self.columns), listed)


def listed_keys(keys: Iterable[Key], types: Sequence[pa.DataType]) -> SortedKeys:
    """Returns the set of some keys in memory. `types` are those of their Arrow columns."""
    ascending = sorted(set(keys))
    columns = zip(*ascending, strict=True) if ascending else ((),) * len(types)
    pairs = zip(columns, types, strict=True)
    arrays = tuple(pa.array(c, key_column_type(kind)) for c, kind in pairs)
    return SortedKeys(arrays, ascending)


@dataclass(frozen=True, slots=True)
class KeyRun:
    """Adjacent keys of a set, with bounds of their first field, and read when they are needed."""

    low: KeyValue | None
    high: KeyValue | None
    read: Callable[[], SortedKeys]


class KeySource(Protocol):
    """A set of keys, in runs."""

    def near(self, low: Key, high: Key) -> Iterable[KeyRun]:
        """Yields at least the runs with keys from `low` to `high`, ascending.

        `low` and `high` are either the first and last of some rows in key order, or the bounds of
        each field.
        """


@dataclass(slots=True)
class KeyColumns:
    """The row key columns of some rows, as of `as_key_column`, which may have views.

    In key order, `low` and `high` are the first and last key. Otherwise they are the bounds of
    each field.
    """

    columns: list[pa.Array]
    in_order: bool = True
    low: Key = field(init=False)
    high: Key = field(init=False)

    def __post_init__(self) -> None:
        if self.in_order:
            last = len(self) - 1
            self.low = tuple(column[0].as_py() for column in self.columns)
            self.high = tuple(column[last].as_py() for column in self.columns)
        else:
            bounds = [pc.min_max(as_plain(column)) for column in self.columns]
            self.low = tuple(each["min"].as_py() for each in bounds)
            self.high = tuple(each["max"].as_py() for each in bounds)

    def __len__(self) -> int:
        return len(self.columns[0])

    def slice(self, start: int, stop: int) -> "KeyColumns":
        """Returns some of the rows."""
        return KeyColumns([c.slice(start, stop - start) for c in self.columns], self.in_order)

    def find(self, source: KeySource) -> Mask | None:
        """Returns whether each row has a key of the source. None if no row has."""
        result: Mask | None = None
        for run in source.near(self.low, self.high):
            start, stop = self._rows_of(run)
            if start == stop:
                continue
            rows = self if stop - start == len(self) else self.slice(start, stop)
            keys = run.read().between(rows.low, rows.high)
            hits = rows._find_keys(keys) if len(keys) else None
            if hits is not None:
                if result is None:
                    result = np.zeros(len(self), np.bool_)
                result[start:stop] |= hits
        return result

    def _rows_of(self, run: KeyRun) -> tuple[int, int]:
        """Returns start and stop of the rows that may have a key of the run."""
        start, stop = 0, len(self)
        if self.in_order:
            first = self.columns[0]
            if run.low is not None and self.low[0] < run.low:  # type: ignore[operator]
                start = _bisect(first, run.low, start, stop)
            if run.high is not None and self.high[0] > run.high:  # type: ignore[operator]
                stop = _bisect(first, run.high, start, stop, is_right=True)
        return start, stop

    def _find_keys(self, keys: SortedKeys) -> Mask | None:
        """Returns whether each row has one of the keys, which are between those of the rows."""
        varying = 0
        while varying < len(self.columns) and self.low[varying] == self.high[varying]:
            varying += 1
        if varying == len(self.columns):
            return np.ones(len(self), np.bool_)
        if varying == len(self.columns) - 1:
            return _find_values(self.columns[varying], keys.columns[varying], self.in_order)
        values, codes = _encode(self.columns[varying:], keys.columns[varying:])
        return _mask(np.isin(values, codes))


def key_columns(columns: Sequence[pa.Array], are_in_order: bool) -> KeyColumns:
    """Returns the rows. Unless `are_in_order`, their order is checked."""
    if are_in_order:
        return KeyColumns([as_key_column(column) for column in columns])
    plain = [as_key_column(as_plain(column)) for column in columns]
    return KeyColumns(plain, is_ascending(plain))


def _find_values(values: pa.Array, keys: pa.Array, in_order: bool) -> Mask | None:
    """Returns whether each value is one of the keys, which ascend, each once."""
    if pa.types.is_integer(values.type):
        numbers, sought = values.to_numpy(), keys.to_numpy()
        if in_order and len(sought) <= len(numbers):
            starts = np.searchsorted(numbers, sought)
            stops = np.searchsorted(numbers, sought, "right")
            return _mask_of_runs(len(numbers), starts, stops)
        positions = np.minimum(np.searchsorted(sought, numbers), len(sought) - 1)
        return _mask(sought[positions] == numbers)
    if in_order and len(keys) <= _SEARCHED_TEXTS_MAX:
        texts = keys.to_pylist()
        starts = np.array([_bisect(values, text, 0, len(values)) for text in texts])
        pairs = zip(texts, starts.tolist(), strict=True)
        stops = np.array([_run_stop(values, text, start, len(values)) for text, start in pairs])
        return _mask_of_runs(len(values), starts, stops)
    result = pc.is_in(as_plain(values), value_set=keys)
    return _mask(result.to_numpy(zero_copy_only=False))


def _run_stop(values: pa.Array, value: KeyValue, start: int, stop: int) -> int:
    """Returns the end of the run of a value that begins at `start`, if it is there."""
    for end in range(start, min(start + 2, stop)):
        if values[end].as_py() != value:
            return end
    return _bisect(values, value, start, stop, is_right=True)


def _mask_of_runs(
    rows: int, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
) -> Mask | None:
    lengths = stops - starts
    longest = lengths.max()
    if longest == 0:
        return None
    mask = np.zeros(rows, np.bool_)
    if longest == 1:
        mask[starts[lengths == 1]] = True
        return mask
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        mask[start:stop] = True
    return mask


def _mask(mask: Mask) -> Mask | None:
    return mask if mask.any() else None


def _encode(
    rows: Sequence[pa.Array], keys: Sequence[pa.Array]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns a number for each row and each key, equal if and only if all fields are."""
    count = len(rows[0])
    codes = np.zeros(count + len(keys[0]), np.int64)
    distinct = 1
    for values, sought in zip(rows, keys, strict=True):
        both = pa.concat_arrays([as_plain(values), sought]).dictionary_encode()
        size = len(both.dictionary)
        if distinct * size > _CODES_MAX:
            unique, codes = np.unique(codes, return_inverse=True)
            distinct = len(unique)
        codes = codes * size + both.indices.to_numpy()
        distinct *= size
    return codes[:count], codes[count:]


def _bisect(
    values: pa.Array, value: KeyValue, start: int, stop: int, is_right: bool = False
) -> int:
    """Returns the place of a value among ascending ones."""
    if pa.types.is_integer(values.type):
        side: Any = "right" if is_right else "left"
        return start + int(np.searchsorted(values.to_numpy()[start:stop], value, side))
    search = bisect_right if is_right else bisect_left
    return search(values, value, start, stop, key=_to_python)


def _to_python(value: pa.Scalar) -> Any:
    return value.as_py()
