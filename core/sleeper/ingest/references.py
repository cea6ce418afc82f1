"""The partitions that refer to the files of an ingest.

Rows are counted by leaf when they are written. A file of few rows per leaf has one reference, in
the lowest partition that contains its keys: as many references as there are leaves would make the
commit, the state and compactions larger with every leaf.
"""

from collections.abc import Sequence
from dataclasses import replace

from sleeper.files import bounds_region
from sleeper.partitions.partition import ROOT_PARTITION_ID, Partition
from sleeper.statestore.reading.descent import Descent
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.transactions.add_files import NewFile


def list_counted(
    state: TableState, descent: Descent | None, rows: int, size: int
) -> list[Partition]:
    """Returns the partitions by which rows of a shared file are counted, without overlap.

    These are the leaves, or the root if the rows, of a size in memory, are too few for leaves.
    """
    if descent is not None and descent.leaves_max(rows, size) < 2:
        return [state.partitions.get(ROOT_PARTITION_ID)]
    return list(state.partitions.leaves())


def choose_references(
    state: TableState, descent: Descent | None, files: Sequence[NewFile]
) -> tuple[NewFile, ...]:
    """Returns the files, whose rows are counted, with the references to commit."""
    if descent is None:
        return tuple(files)
    return tuple(_choose(state, descent, new) for new in files)


def _choose(state: TableState, descent: Descent, new: NewFile) -> NewFile:
    partitions, file = len(new.rows_by_partition), new.file
    if 1 < partitions <= descent.leaves_max(file.rows, file.bytes):
        return new
    lowest = state.partitions.lowest_containing(bounds_region(state.schema, file))
    return replace(new, rows_by_partition=((lowest.id, file.rows),))
