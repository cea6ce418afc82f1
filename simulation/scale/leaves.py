"""The files of leaves, and the compaction jobs that the product's own planner chooses for them.

Leaves with the same files are counted together, whether they are of one table or of several, and so
are files of the same size. So a million leaves under ingest that touches all of them are a few
groups.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sleeper.compaction.strategy import FileSize, StrategySettings, size_ratio_groups

Rows = tuple[int, ...]
"""The rows of each input of a job."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """The files of a leaf: its free ones by rows, and its jobs by their inputs, with counts."""

    free: tuple[tuple[int, int], ...] = ()
    jobs: tuple[tuple[Rows, int], ...] = ()

    @property
    def free_files(self) -> int:
        """The number of files without a job."""
        return sum(count for _, count in self.free)

    @property
    def files(self) -> int:
        """The number of its files."""
        return self.free_files + sum(len(inputs) * count for inputs, count in self.jobs)

    def with_file(self, rows: int, count: int = 1) -> "Leaf":
        """Returns the leaf with more free files."""
        return Leaf(_changed(self.free, {rows: count}), self.jobs)

    def with_jobs(self, jobs: Counter[Rows]) -> "Leaf":
        """Returns the leaf with files assigned to jobs."""
        assigned: Counter[int] = Counter()
        for inputs, count in jobs.items():
            for rows in inputs:
                assigned[rows] -= count
        return Leaf(_changed(self.free, assigned), _changed(self.jobs, jobs))

    def without_jobs(self, inputs: Rows, count: int) -> "Leaf":
        """Returns the leaf after so many of its jobs with these inputs."""
        jobs = _changed(self.jobs, {inputs: -count})
        return Leaf(_changed(self.free, {sum(inputs): count}), jobs)


@dataclass(frozen=True, slots=True)
class Jobs:
    """So many jobs with the same inputs."""

    inputs: Rows
    count: int


class Leaves:
    """Leaves by their files. `jobs` are unfinished."""

    def __init__(self, count: int, settings: StrategySettings) -> None:
        self.count = count
        self.jobs = 0
        self._settings = settings
        self._leaves: Counter[Leaf] = Counter({Leaf(): count})

    @property
    def files(self) -> int:
        """The number of references to files."""
        return sum(leaf.files * count for leaf, count in self._leaves.items())

    def add_file(self, rows: int, count: int = 1) -> None:
        """Adds so many files to each leaf."""
        leaves: Counter[Leaf] = Counter()
        for leaf, number in self._leaves.items():
            leaves[leaf.with_file(rows, count)] += number
        self._leaves = leaves

    def create_jobs(self, jobs_max: int) -> list[Jobs]:
        """Assigns files to at most so many jobs, of the leaves with the most files first."""
        created: Counter[Rows] = Counter()
        room = jobs_max - self.jobs
        for leaf in sorted(self._leaves, key=lambda each: (-each.free_files, each.free, each.jobs)):
            if room <= 0:
                break
            groups = self._groups(leaf, room)
            if not groups:
                continue
            leaves = min(self._leaves[leaf], room // groups.total())
            self._move(leaf, leaf.with_jobs(groups), leaves)
            for inputs, count in groups.items():
                created[inputs] += count * leaves
            room -= groups.total() * leaves
        self.jobs += created.total()
        return [Jobs(inputs, count) for inputs, count in created.items() if count]

    def finish(self, jobs: Jobs) -> None:
        """Replaces the inputs of the jobs by one file each."""
        remaining = jobs.count
        while remaining:
            leaf, own = self._find(jobs.inputs)
            leaves = self._leaves[leaf]
            each = min(own, remaining // leaves)
            if not each:
                each, leaves = 1, remaining
            self._move(leaf, leaf.without_jobs(jobs.inputs, each), leaves)
            remaining -= each * leaves
        self.jobs -= jobs.count

    def _find(self, inputs: Rows) -> tuple[Leaf, int]:
        """Returns a leaf with such jobs, and their number."""
        for leaf in self._leaves:
            for own, count in leaf.jobs:
                if own == inputs:
                    return leaf, count
        raise ValueError(f"no job has {len(inputs)} inputs of {sum(inputs)} rows")

    def _groups(self, leaf: Leaf, most: int) -> Counter[Rows]:
        files = [
            FileSize(f"{rows}-{number}", rows)
            for rows, count in leaf.free
            for number in range(count)
        ]
        groups = size_ratio_groups(files, self._settings)
        return Counter(tuple(file.rows for file in group) for group in islice(groups, most))

    def _move(self, old: Leaf, new: Leaf, count: int) -> None:
        self._leaves[old] -= count
        if not self._leaves[old]:
            del self._leaves[old]
        self._leaves[new] += count


def _changed(pairs: Iterable[tuple[Any, int]], changes: Mapping[Any, int]) -> tuple[Any, ...]:
    """Returns the counts after the changes, in order, without those that are 0."""
    counts = dict(pairs)
    for key, count in changes.items():
        counts[key] = counts.get(key, 0) + count
    return tuple(sorted((key, count) for key, count in counts.items() if count))
