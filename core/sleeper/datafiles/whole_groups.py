"""Sorted batches cut anew, so that rows of equal keys never span two of them."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from sleeper.datafiles.key_runs import run_starts

Key = tuple[object, ...]


def whole_groups(
    batches: Iterator[pa.RecordBatch],
    keys: Sequence[str],
    rows_max: int,
    too_long: Callable[[Key], Exception],
    rows_least: int = 1,
) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that end where a group does, of `rows_least` rows or more.

    At most one group is held, and so many rows before it. `too_long` makes the error for the
    key of a group of more than `rows_max` rows.
    """
    held: list[pa.RecordBatch] = []
    held_rows = 0
    # How many rows there are so far of the group that the held rows end with.
    last_rows = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        starts = run_starts([batch.column(name) for name in keys])
        lengths = np.diff(np.append(starts, batch.num_rows))
        goes_on = bool(held) and key_of(held[-1], keys, -1) == key_of(batch, keys, 0)
        if goes_on:
            lengths[0] += last_rows
        longest = int(lengths.argmax())
        if lengths[longest] > rows_max:
            raise too_long(key_of(batch, keys, int(starts[longest])))
        last_rows = int(lengths[-1])
        # Before this row of the batch, every group is whole.
        end = 0 if goes_on and len(starts) == 1 else int(starts[-1])
        is_end = end or not goes_on
        if is_end and held_rows + end >= rows_least:
            yield joined([*held, batch.slice(0, end)] if end else held)
            held, held_rows = [], 0
            batch = batch.slice(end)
        held.append(batch)
        held_rows += batch.num_rows
    if held:
        yield joined(held)


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows in one batch. There is at least one."""
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches)


def key_of(batch: pa.RecordBatch, keys: Sequence[str], row: int) -> Key:
    """The values of the row's keys."""
    return tuple(batch.column(name)[row].as_py() for name in keys)
