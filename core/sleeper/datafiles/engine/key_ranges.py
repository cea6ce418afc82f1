"""Finds the rows whose key is in one of many ranges, by a search of the ranges' ends."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import as_plain
from sleeper.datafiles.conversions import boolean_array
from sleeper.datafiles.key_values import as_key_column, key_column_type
from sleeper.partitions.region import Range


class KeyRanges:
    """Ascending ranges without overlap of one key field of an Arrow type. Safe for threads."""

    def __init__(self, ranges: Sequence[Range], kind: pa.DataType) -> None:
        values = key_column_type(kind)
        self._starts = pa.array([each.min for each in ranges], values)
        # Only the last range may have no end.
        self._ends = pa.array([each.max for each in ranges if each.max is not None], values)

    def contain(self, keys: pa.Array) -> pa.Array:
        """Returns whether each key is in one of the ranges."""
        values = as_key_column(as_plain(keys))
        return boolean_array(_count(self._starts, values) > _count(self._ends, values))


def _count(ends: pa.Array, values: pa.Array) -> npt.NDArray[np.integer[Any]]:
    """Returns how many of the ascending ends are at most each value."""
    counts = pc.search_sorted(ends, values, side="right")
    return np.asarray(counts.to_numpy(zero_copy_only=False))
