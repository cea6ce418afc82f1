"""Selection of the files to compact together.

A strategy groups the unassigned files of one partition. Each group of two or more files becomes a
job. Strategies are registered by name (`sleeper.user_code.wheel`), like those of users.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from sleeper.errors import UserCodeError
from sleeper.partitions.partition import PartitionId
from sleeper.statestore.reading.file_queries import PartitionFile

_FILES_PER_JOB_MAX = 100


@dataclass(frozen=True, slots=True)
class FileSize:
    """A file and the number of its rows in the partition."""

    path: str
    rows: int


@dataclass(frozen=True, slots=True)
class StrategySettings:
    """The settings of a strategy, from a table's properties."""

    files_per_job_max: int = 12
    size_ratio: float = 3.0
    jobs_per_partition_max: int | None = None
    files_max: int = 12


Strategy = Callable[[Sequence[FileSize], StrategySettings], list[list[FileSize]]]


def basic_groups(files: Sequence[FileSize], settings: StrategySettings) -> list[list[FileSize]]:
    """Returns full groups of `files_per_job_max` files, smallest first."""
    size = settings.files_per_job_max
    ordered = _by_size(files)
    whole = len(ordered) - len(ordered) % size
    return [ordered[start : start + size] for start in range(0, whole, size)]


def size_ratio_groups(
    files: Sequence[FileSize], settings: StrategySettings
) -> list[list[FileSize]]:
    """Returns groups whose largest file is small compared to the sum of the others.

    Files in order of size are cut into runs of `files_per_job_max`. A run is a group if the
    rows of all files but the largest are at least `size_ratio` times the rows of the largest.
    Otherwise the run without its largest file is tested. Each compaction thus moves a row into
    a file that is larger by a constant factor, so a row is rewritten a logarithmic number of
    times.
    """
    groups = []
    ordered = _by_size(files)
    while len(ordered) > 1:
        run = ordered[: settings.files_per_job_max]
        while len(run) > 1 and not _is_even(run, settings.size_ratio):
            run.pop()
        if len(run) < 2:
            ordered.pop(0)
            continue
        groups.append(run)
        ordered = ordered[len(run) :]
    return groups


def cost_groups(files: Sequence[FileSize], settings: StrategySettings) -> list[list[FileSize]]:
    """Returns the files to merge so that rows are rewritten as rarely as `files_max` files allow.

    With at most k files beside a new one, of which each row is rewritten at most w times,
    C(w + k, k) equal files can be added (docs/design/0028-compaction-by-rows.md). So a file that
    was rewritten w - 1 times is merged with all smaller ones when these have k / w times its rows,
    where k is the number of files that it and the smaller ones may be. The last of the k is merged
    with any smaller file.
    """
    ordered = _by_size(files)[::-1]
    smaller = sum(f.rows for f in ordered)
    for index, file in enumerate(ordered[:-1]):
        smaller -= file.rows
        files_left = settings.files_max - index - 1
        rewrites = _count_rewrites(file.rows / max(1, ordered[-1].rows), files_left)
        if files_left < 2 or smaller * (rewrites + 1) >= file.rows * files_left:
            return _in_equal_parts(ordered[index:][::-1])
    return []


def _count_rewrites(size: float, files_max: int) -> int:
    """Returns the smallest w with C(w + files_max, files_max) >= size."""
    rewrites, reached = 0, 1.0
    while files_max > 1 and reached < size:
        rewrites += 1
        reached *= (rewrites + files_max) / rewrites
    return rewrites


def _in_equal_parts(files: list[FileSize]) -> list[list[FileSize]]:
    parts = -(-len(files) // _FILES_PER_JOB_MAX)
    size = -(-len(files) // parts)
    return [
        part for start in range(0, len(files), size) if len(part := files[start : start + size]) > 1
    ]


def whole_leaf_groups(
    files: Sequence[FileSize],
    settings: StrategySettings,  # noqa: ARG001
) -> list[list[FileSize]]:
    """Returns one group of all files of the partition, for a full compaction."""
    return [_by_size(files)] if len(files) > 1 else []


def _by_size(files: Sequence[FileSize]) -> list[FileSize]:
    return sorted(files, key=lambda f: (f.rows, f.path))


def _is_even(run: Sequence[FileSize], ratio: float) -> bool:
    *others, largest = run
    return sum(f.rows for f in others) >= ratio * largest.rows


@dataclass(frozen=True, slots=True)
class Selection:
    """Files of one partition to compact together, and the number of their rows there."""

    partition_id: PartitionId
    inputs: tuple[str, ...]
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Selector:
    """A strategy with its name and settings."""

    name: str
    strategy: Strategy
    settings: StrategySettings

    def groups(self, partition_id: PartitionId, files: Sequence[FileSize]) -> list[tuple[str, ...]]:
        """Returns the groups as paths. UserCodeError if the strategy or its answer fails."""
        try:
            answer = self.strategy(files, self.settings)
        except UserCodeError as error:
            raise self._failure(partition_id, str(error)) from error
        groups = [tuple(file.path for file in group) for group in answer]
        free = {file.path for file in files}
        for group in groups:
            if len(group) < 2:
                raise self._failure(
                    partition_id, f"group of {len(group)} files (expected at least 2)"
                )
            for path in group:
                if path not in free:
                    raise self._failure(
                        partition_id, f"file {path} is not a candidate, or is in two groups"
                    )
                free.remove(path)
        return groups

    def _failure(self, partition_id: PartitionId, reason: str) -> UserCodeError:
        return UserCodeError(
            f"compaction strategy {self.name!r} on partition {partition_id}: {reason}"
        )


def select(
    partitions: Iterable[tuple[PartitionId, Sequence[PartitionFile]]],
    selector: Selector,
    jobs_max: int,
) -> list[Selection]:
    """Returns at most `jobs_max` selections, of the partitions with the most files first."""
    if jobs_max <= 0:
        return []
    ranked = heapq.nlargest(jobs_max, _select_all(partitions, selector), key=lambda each: each[0])
    return [selection for _, selection in ranked]


def _select_all(
    partitions: Iterable[tuple[PartitionId, Sequence[PartitionFile]]], selector: Selector
) -> Iterator[tuple[int, Selection]]:
    """Yields each selection after the number of unassigned files of its partition."""
    for partition_id, files in partitions:
        free = [FileSize(f.path, f.rows) for f in files if f.job_id is None]
        if len(free) < 2:
            continue
        groups = selector.groups(partition_id, free)
        most = selector.settings.jobs_per_partition_max
        if most is not None:
            running = len({f.job_id for f in files} - {None})
            groups = groups[: max(0, most - running)]
        rows = {file.path: file.rows for file in free}
        for group in groups:
            yield len(free), Selection(partition_id, group, sum(rows[path] for path in group))
