"""Which jobs to make of the files as they are: text in, decisions out, nothing changed."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sleeper.compaction.strategy import (
    FileSize,
    Strategy,
    StrategySettings,
    strategy_named,
    whole_leaf_groups,
)
from sleeper.partitions.partition import PartitionId
from sleeper.properties.table import (
    COMPACTION_FILES_BATCH_SIZE,
    COMPACTION_STRATEGY,
    SIZE_RATIO,
    SIZE_RATIO_JOBS_MAX,
    CompactionStrategyName,
)
from sleeper.properties.values import TableProperties
from sleeper.statestore.reading.file_queries import PartitionFile


@dataclass(frozen=True, slots=True)
class Selection:
    """Files of one leaf to be compacted together."""

    partition_id: PartitionId
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Selector:
    """A strategy with what the table's properties tell it."""

    strategy: Strategy
    settings: StrategySettings


def selector_of(properties: TableProperties, full: bool = False) -> Selector:
    """The table's own, or for a full compaction the one that takes whole leaves."""
    name = properties.get(COMPACTION_STRATEGY)
    is_size_ratio = name is CompactionStrategyName.SIZE_RATIO
    settings = StrategySettings(
        properties.get(COMPACTION_FILES_BATCH_SIZE),
        properties.get(SIZE_RATIO),
        properties.get(SIZE_RATIO_JOBS_MAX) if is_size_ratio and not full else None,
    )
    return Selector(whole_leaf_groups if full else strategy_named(name.value), settings)


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
        groups = selector.strategy(free, selector.settings)
        most = selector.settings.jobs_per_partition_max
        if most is not None:
            running = len({f.job_id for f in files} - {None})
            groups = groups[: max(0, most - running)]
        for group in groups:
            yield len(free), Selection(partition_id, tuple(f.path for f in group))
