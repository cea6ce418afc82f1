"""References of split partitions are pushed down to the leaves below.

A file written for a partition that was split since keeps its reference there until now:
only references on leaves are compacted. Rows are estimated as if they lay evenly in the
leaves that the file's key bounds touch; nobody opens a file for that.
"""

from collections.abc import Iterator

from sleeper.files.data_file import DataFile, FileReference
from sleeper.partitions.partition import PartitionId
from sleeper.partitions.region import Range, Region
from sleeper.schema.model import Schema, next_key_value
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.push_down import PushDownReferences, ReferenceMove

_REFERENCES_PER_READ = 500
_REFERENCES_PER_ENTRY = 2_000


def push_down_references(store: StateStore) -> int:
    """Pushes down all that are not assigned. Returns how many references went.

    File by file, in entries of some thousand new references. What cannot move now, because
    another writer was first, is left for the next time.
    """
    moved = 0
    while True:
        with store.reading() as state:
            moves = [
                _move(state, file, reference)
                for file, reference in state.files.on_split_partitions(_REFERENCES_PER_READ)
            ]
        applied = 0
        for entry in _entries(moves):
            (outcome,) = store.commit(PushDownReferences(entry))
            applied += 0 if outcome.number is None else len(entry)
        moved += applied
        # Where nothing went, asking again would give the same references.
        if len(moves) < _REFERENCES_PER_READ or not applied:
            return moved


def _move(state: TableState, file: DataFile, reference: FileReference) -> ReferenceMove:
    source = state.partitions.get(reference.partition_id).region
    keys = _region_of_bounds(state.schema, file).intersect(source)
    leaves = state.partitions.leaves_overlapping([keys] if keys is not None else [])
    rows = _evenly(reference.rows, [leaf.id for leaf in leaves])
    return ReferenceMove(file.path, reference.partition_id, rows)


def _region_of_bounds(schema: Schema, file: DataFile) -> Region:
    """The smallest region that holds every row of the file."""
    bounds = zip(schema.row_keys, file.smallest_key, file.largest_key, strict=True)
    return Region(tuple(Range(low, next_key_value(f, high)) for f, low, high in bounds))


def _evenly(rows: int, leaves: list[PartitionId]) -> tuple[tuple[PartitionId, int], ...]:
    """At least one row each: a reference of no rows would seem worth nothing to compact."""
    share, rest = divmod(rows, max(1, len(leaves)))
    return tuple(
        (leaf, max(1, share + (1 if place < rest else 0))) for place, leaf in enumerate(leaves)
    )


def _entries(moves: list[ReferenceMove]) -> Iterator[tuple[ReferenceMove, ...]]:
    entry: list[ReferenceMove] = []
    size = 0
    for move in moves:
        if entry and size + len(move.to) > _REFERENCES_PER_ENTRY:
            yield tuple(entry)
            entry, size = [], 0
        entry.append(move)
        size += len(move.to)
    if entry:
        yield tuple(entry)
