"""Which files of a partition to compact together.

A strategy looks at the unassigned files of one leaf and answers with groups of them, each
to become one job. A file alone is never a group. Those here are registered by name
(`sleeper.user_code.name`), as those of users are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileSize:
    """A file of the partition, with the rows that lie in it."""

    path: str
    rows: int


@dataclass(frozen=True, slots=True)
class StrategySettings:
    """What a table's properties say to its strategy."""

    files_per_job_max: int = 12
    size_ratio: float = 3.0
    jobs_per_partition_max: int | None = None


Strategy = Callable[[Sequence[FileSize], StrategySettings], list[list[FileSize]]]


def basic_groups(files: Sequence[FileSize], settings: StrategySettings) -> list[list[FileSize]]:
    """Full groups of `files_per_job_max` files, smallest first."""
    size = settings.files_per_job_max
    ordered = _by_size(files)
    whole = len(ordered) - len(ordered) % size
    return [ordered[start : start + size] for start in range(0, whole, size)]


def size_ratio_groups(
    files: Sequence[FileSize], settings: StrategySettings
) -> list[list[FileSize]]:
    """Groups in which the largest file is small beside the others together.

    Files in order of size are cut into runs of `files_per_job_max`. A run is a group if the
    rows of all but its largest are at least `size_ratio` times the rows of the largest;
    otherwise its largest is left out and the rest is tried. So each compaction of a row puts
    it into a file that is larger by a constant factor, and a row is rewritten a logarithmic
    number of times.
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


def whole_leaf_groups(
    files: Sequence[FileSize],
    settings: StrategySettings,  # noqa: ARG001
) -> list[list[FileSize]]:
    """All files of the leaf in one job, however many: a full compaction."""
    return [_by_size(files)] if len(files) > 1 else []


def _by_size(files: Sequence[FileSize]) -> list[FileSize]:
    return sorted(files, key=lambda f: (f.rows, f.path))


def _is_even(run: Sequence[FileSize], ratio: float) -> bool:
    *others, largest = run
    return sum(f.rows for f in others) >= ratio * largest.rows
