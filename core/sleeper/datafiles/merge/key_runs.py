"""Runs of rows with equal keys, and the order of rows, by whole columns."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def run_starts(keys: Sequence[pa.Array]) -> np.ndarray:
    """Where a row differs from the one before; the first row does."""
    differs = np.zeros(max(len(keys[0]) - 1, 0), bool)
    for key in keys:
        before, this = _neighbours(key)
        differs |= pc.not_equal(this, before).to_numpy(zero_copy_only=False)
    return np.append([0], np.flatnonzero(differs) + 1) if len(keys[0]) else np.array([], int)


def first_descent(keys: Sequence[pa.Array]) -> int | None:
    """The first row whose keys come before those of the row before it; None if they ascend."""
    if len(keys[0]) < 2:
        return None
    is_equal = np.ones(len(keys[0]) - 1, bool)
    descends = np.zeros(len(keys[0]) - 1, bool)
    for key in keys:
        before, this = _neighbours(key)
        descends |= is_equal & pc.less(this, before).to_numpy(zero_copy_only=False)
        is_equal &= pc.equal(this, before).to_numpy(zero_copy_only=False)
        if not is_equal.any():
            break
    found = np.flatnonzero(descends)
    return int(found[0]) + 1 if len(found) else None


def is_ascending(keys: Sequence[pa.Array]) -> bool:
    """Whether no row's keys come before those of the row before it.

    Takes a quarter of the time of `first_descent`.
    """
    are_equal: pa.Array | None = None
    for place, key in enumerate(keys):
        before, this = _neighbours(key)
        descends = pc.less(this, before)
        if are_equal is not None:
            descends = pc.and_(are_equal, descends)
        if pc.any(descends).as_py():
            return False
        if place + 1 < len(keys):
            same = pc.equal(this, before)
            are_equal = same if are_equal is None else pc.and_(are_equal, same)
            if not pc.any(are_equal).as_py():
                break
    return True


def _neighbours(key: pa.Array) -> tuple[pa.Array, pa.Array]:
    plain = key.cast(_PLAIN.get(key.type, key.type))
    return plain.slice(0, len(plain) - 1), plain.slice(1)
