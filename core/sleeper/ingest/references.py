"""The partitions that refer to the files of an ingest.

Rows are counted by leaf when they are written. A file of few rows per leaf has one reference, in
the lowest partition that contains its keys: as many references as there are leaves would make the
commit, the state and compactions larger with every leaf.
"""

from collections.abc import Sequence
from dataclasses import replace

from sleeper.files import bounds_region
from sleeper.statestore.reading.descent import Descent
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.transactions.add_files import NewFile


def choose_references(
    state: TableState, descent: Descent | None, files: Sequence[NewFile]
) -> tuple[NewFile, ...]:
    """Returns the files, which have a reference per leaf, with the references to commit."""
    if descent is None:
        return tuple(files)
    return tuple(_choose(state, descent, new) for new in files)


def _choose(state: TableState, descent: Descent, new: NewFile) -> NewFile:
    leaves, file = len(new.rows_by_partition), new.file
    if leaves == 1 or leaves <= descent.leaves_max(file.rows, file.bytes):
        return new
    lowest = state.partitions.lowest_containing(bounds_region(state.schema, file))
    return replace(new, rows_by_partition=((lowest.id, file.rows),))
