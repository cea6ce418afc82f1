"""Leaves of a table at one version, with their files and deletes: the input of query plans.

`StateLeaves` queries the state for each leaf, `LeavesOfRegion` for many leaves together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sleeper.files import DataFile
from sleeper.partitions.partition import Partition, PartitionId
from sleeper.partitions.region import Region
from sleeper.statestore.reading.delete_queries import Delete
from sleeper.statestore.reading.table_state import TableState

_LEAVES_READ_ALONE_MAX = 8


class LeafSource(Protocol):
    """The leaves of a table at one version, with their files and deletes."""

    def leaves_overlapping(self, region: Region) -> Sequence[Partition]:
        """Returns the leaves that overlap the region, in key order."""

    def leaf_files(self, leaf_id: PartitionId, within: Region) -> Sequence[DataFile]:
        """Returns the files that may hold rows of the leaf within the region."""

    def deletes(self, leaf_id: PartitionId, within: Region) -> Sequence[Delete]:
        """Returns the deletes that overlap the region of the leaf, in the order of numbers."""


@dataclass(frozen=True, slots=True)
class StateLeaves:
    """Implements `LeafSource` by queries of a state."""

    state: TableState

    def leaves_overlapping(self, region: Region) -> Sequence[Partition]:
        """See the protocol."""
        return self.state.partitions.leaves_overlapping([region])

    def leaf_files(self, leaf_id: PartitionId, within: Region) -> Sequence[DataFile]:
        """See the protocol."""
        return self.state.files.leaf_files(leaf_id, within)

    def deletes(self, leaf_id: PartitionId, within: Region) -> Sequence[Delete]:  # noqa: ARG002
        """See the protocol."""
        return self.state.deletes.overlapping(within)


class LeavesOfRegion:
    """Implements `LeafSource` for plans of one region: reads the files of many leaves together."""

    def __init__(self, state: TableState, region: Region) -> None:
        self._state = state
        self._files: Mapping[PartitionId, Sequence[DataFile]] | None = None
        self._has_deletes = True
        self._leaves = StateLeaves(state).leaves_overlapping(region)
        if len(self._leaves) > _LEAVES_READ_ALONE_MAX:
            ids = [leaf.id for leaf in self._leaves]
            self._files = state.files.files_by_leaf(ids, region)
            self._has_deletes = state.deletes.count() > 0

    def leaves_overlapping(self, region: Region) -> Sequence[Partition]:  # noqa: ARG002
        """See the protocol."""
        return self._leaves

    def leaf_files(self, leaf_id: PartitionId, within: Region) -> Sequence[DataFile]:
        """See the protocol."""
        if self._files is None:
            return StateLeaves(self._state).leaf_files(leaf_id, within)
        return self._files.get(leaf_id, ())

    def deletes(self, leaf_id: PartitionId, within: Region) -> Sequence[Delete]:
        """See the protocol."""
        return StateLeaves(self._state).deletes(leaf_id, within) if self._has_deletes else ()
