"""Moves references of inner partitions down, to where the rows of their files belong.

A reference is in an inner partition because the partition was split, because a leaf below would get
few rows of the file, or because a compaction there wrote the file.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from sleeper.files import DataFile, FileReference, bounds_region
from sleeper.partitions.partition import PartitionId
from sleeper.statestore.reading.descent import Descent, find_partitions
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.partition_split import PushDownReferences, ReferenceMove

_MOVES_PER_READ = 500
_REFERENCES_PER_ENTRY = 2_000

T = TypeVar("T")


def push_down_references(store: StateStore, descent: Descent | None = None) -> int:
    """Moves unassigned references down, without a descent to the leaves. Returns their number.

    Each entry moves whole files, up to some thousand new references. References that a
    concurrent commit changes stay for the next call.
    """
    moved = 0
    while True:
        with store.reading() as state:
            moves = list(islice(plan_moves(state, descent), _MOVES_PER_READ))
        applied = 0
        for entry in batches(moves, lambda move: len(move.to), _REFERENCES_PER_ENTRY):
            (outcome,) = store.commit(PushDownReferences(tuple(entry)))
            applied += 0 if outcome.number is None else len(entry)
        moved += applied
        # Without progress, another read would return the same references.
        if len(moves) < _MOVES_PER_READ or not applied:
            return moved


def plan_moves(state: TableState, descent: Descent | None) -> Iterator[ReferenceMove]:
    """Yields the moves of references that belong further down."""
    for file, reference in state.files.inner_references():
        move = _plan_move(state, descent, file, reference)
        if move is not None:
            yield move


def _plan_move(
    state: TableState, descent: Descent | None, file: DataFile, reference: FileReference
) -> ReferenceMove | None:
    source = state.partitions.get(reference.partition_id)
    keys = bounds_region(state.schema, file).intersect(source.region)
    rows = reference.rows
    size = file.bytes * rows // max(1, file.rows)
    partitions = [] if keys is None else find_partitions(state, descent, keys, rows, size)
    to = [each.id for each in partitions]
    if to == [source.id]:
        return None
    return ReferenceMove(file.path, source.id, _share_rows(rows, to))


def _share_rows(rows: int, to: Sequence[PartitionId]) -> tuple[tuple[PartitionId, int], ...]:
    """Divides rows evenly. Each gets at least one, so that strategies see the reference."""
    share, rest = divmod(rows, max(1, len(to)))
    return tuple(
        (each, max(1, share + (1 if index < rest else 0))) for index, each in enumerate(to)
    )


def batches(items: Sequence[T], size: Callable[[T], int], size_max: int) -> Iterator[list[T]]:
    """Cuts the items into lists of at most this total size, or of one larger item."""
    batch: list[T] = []
    total = 0
    for item in items:
        if batch and total + size(item) > size_max:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch
