"""Which jobs to make of the files as they are: text in, decisions out, nothing changed."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sleeper.compaction.strategy import (
    FileSize,
    Strategy,
    StrategySettings,
    size_ratio_groups,
    whole_leaf_groups,
)
from sleeper.errors import UserCodeError
from sleeper.partitions.partition import PartitionId
from sleeper.properties.table import (
    COMPACTION_FILES_BATCH_SIZE,
    COMPACTION_STRATEGY,
    SIZE_RATIO,
    SIZE_RATIO_JOBS_MAX,
)
from sleeper.properties.values import TableProperties
from sleeper.statestore.reading.file_queries import PartitionFile
from sleeper.user_code.loading import UserCode
from sleeper.user_code.name import CodeKind


@dataclass(frozen=True, slots=True)
class Selection:
    """Files of one leaf to be compacted together."""

    partition_id: PartitionId
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Selector:
    """A strategy by its name, with what the table's properties tell it."""

    name: str
    strategy: Strategy
    settings: StrategySettings

    def groups(self, partition_id: PartitionId, files: Sequence[FileSize]) -> list[tuple[str, ...]]:
        """The paths that go together. UserCodeError names the strategy if that cannot be."""
        try:
            answer = self.strategy(files, self.settings)
            groups = [tuple(file.path for file in group) for group in answer]
        except (Exception, SystemExit) as error:
            raise self._failure(partition_id, f"{type(error).__name__}: {error}") from error
        free = {file.path for file in files}
        for group in groups:
            if len(group) < 2:
                raise self._failure(partition_id, f"it gave a group of {len(group)} files")
            for path in group:
                if path not in free:
                    raise self._failure(
                        partition_id, f"it gave file {path}, which it was not given or gave before"
                    )
                free.remove(path)
        return groups

    def _failure(self, partition_id: PartitionId, reason: str) -> UserCodeError:
        return UserCodeError(
            f"compaction strategy {self.name!r} on partition {partition_id}: {reason}"
        )


def selector_of(properties: TableProperties, code: UserCode, full: bool = False) -> Selector:
    """The table's own, or for a full compaction the one that takes whole leaves.

    InvalidRequestError if none of that name is registered.
    """
    name = properties.get(COMPACTION_STRATEGY)
    strategy = whole_leaf_groups if full else code.load(CodeKind.STRATEGY, name)
    settings = StrategySettings(
        properties.get(COMPACTION_FILES_BATCH_SIZE),
        properties.get(SIZE_RATIO),
        properties.get(SIZE_RATIO_JOBS_MAX) if strategy is size_ratio_groups else None,
    )
    return Selector(name, strategy, settings)


def select(
    leaves: Iterable[tuple[PartitionId, Sequence[PartitionFile]]],
    selector: Selector,
    jobs_max: int,
) -> list[Selection]:
    """At most so many jobs. Where there would be more, leaves with the most files come first.

    A leaf that has to wait gathers files until its turn comes.
    """
    if jobs_max <= 0:
        return []
    found = heapq.nlargest(jobs_max, _all(leaves, selector), key=lambda each: each[0])
    return [selection for _, selection in found]


def _all(
    leaves: Iterable[tuple[PartitionId, Sequence[PartitionFile]]], selector: Selector
) -> Iterator[tuple[int, Selection]]:
    for partition_id, files in leaves:
        free = [FileSize(f.path, f.rows) for f in files if f.job_id is None]
        if len(free) < 2:
            continue
        groups = selector.groups(partition_id, free)
        most = selector.settings.jobs_per_partition_max
        if most is not None:
            running = len({f.job_id for f in files} - {None})
            groups = groups[: max(0, most - running)]
        for group in groups:
            yield len(free), Selection(partition_id, group)
