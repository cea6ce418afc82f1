"""The order of many rows by their keys, from a number per row.

Arrow compares the values of rows again and again. So each row gets a number of the first bytes of
its first key, or of those after the bytes that all keys share. NumPy sorts the numbers, and Arrow
only the rows of equal ones.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.conversions import as_numbers, integer_array
from sleeper.datafiles.key_values import as_key_column

_RANKED_ROWS_MIN = 5_000
_RANK_BYTES = 8
# With more rows of equal numbers, Arrow sorts all rows.
_TIED_SHARE_MAX = 0.5
_MASKS = np.array([2**64 - 2 ** (64 - 8 * n) for n in range(_RANK_BYTES + 1)], np.uint64)
_Numbers = npt.NDArray[np.int64]
_Ranks = npt.NDArray[np.uint64]


def sorted_places(rows: pa.Table, order: Sequence[tuple[str, str]]) -> pa.Array:
    """Returns the places of the rows in this order of columns and directions; a stable sort.

    The first column has keys, ascending.
    """
    if rows.num_rows < _RANKED_ROWS_MIN:
        return pc.sort_indices(rows, sort_keys=list(order))
    keys = as_key_column(rows.column(order[0][0]).combine_chunks())
    positions, is_same, tied = _place(_ranks(keys, 0))
    if len(tied) > _TIED_SHARE_MAX * len(positions):
        positions, is_same, tied = _place(_ranks(keys, _count_shared(keys)))
    if len(tied) > _TIED_SHARE_MAX * len(positions):
        return pc.sort_indices(rows, sort_keys=list(order))
    if len(tied):
        groups = np.cumsum(np.append(True, ~is_same))[tied]
        some = rows.select([name for name, _ in order]).take(integer_array(positions[tied]))
        names = [str(position) for position in range(len(order))]
        some = some.rename_columns(names).append_column("group", integer_array(groups))
        directions = [(name, way) for name, (_, way) in zip(names, order, strict=True)]
        within = pc.sort_indices(some, sort_keys=[("group", "ascending"), *directions])
        positions[tied] = positions[tied][as_numbers(within)]
    return integer_array(positions)


def _place(ranks: _Ranks) -> tuple[_Numbers, npt.NDArray[np.bool_], _Numbers]:
    """Returns the order of the numbers, whether each next one is the same, and places of these."""
    positions: _Numbers = np.argsort(ranks, kind="stable")
    in_order = ranks[positions]
    is_same = in_order[1:] == in_order[:-1]
    return positions, is_same, np.flatnonzero(np.append(is_same, False) | np.append(False, is_same))


def _ranks(keys: pa.Array, shared: int) -> _Ranks:
    """Returns a number of each key, whose first bytes are `shared` by all.

    A smaller number has a smaller key. Equal numbers may have different keys.
    """
    if pa.types.is_integer(keys.type):
        signed: _Ranks = as_numbers(keys).astype(np.int64).view(np.uint64)
        return signed ^ np.uint64(2**63)
    _, offsets, content = keys.buffers()
    ends = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    values = b"" if content is None else content.to_pybytes()
    starts = ends[:-1] + shared
    # The eight bytes from each place on, of which many overlap.
    windows = np.ndarray((len(values) + 1,), ">u8", values + bytes(_RANK_BYTES), strides=(1,))
    ranks: _Ranks = windows[starts].astype(np.uint64)
    sizes = ends[1:] - starts
    if len(sizes) and sizes.min() < _RANK_BYTES:
        # Bytes after the end of a key are those of the next one.
        ranks &= _MASKS[np.minimum(sizes, _RANK_BYTES)]
    return ranks


def _count_shared(keys: pa.Array) -> int:
    """Returns the number of first bytes that all keys share."""
    if pa.types.is_integer(keys.type):
        return 0
    bounds = pc.min_max(keys.cast(pa.binary()))
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    pairs = zip(low, high, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(low), len(high)))
