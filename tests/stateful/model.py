"""A model of a table in plain Python."""

from collections import Counter
from dataclasses import dataclass, field

Row = tuple[int, int, str]


@dataclass
class ModelJob:
    """An ingest: its rows, and the transaction that committed it."""

    rows: list[Row]
    files: tuple[str, ...] = ()
    number: int | None = None
    committed_ms: int = 0


@dataclass
class ModelDelete:
    """A delete of the rows with `low <= k < high` that were committed before its transaction."""

    low: int
    high: int | None
    number: int | None = None

    def hides(self, key: int, number: int, version: int | None) -> bool:
        """Returns whether a version lacks the row of that key, committed at the number."""
        if self.number is None or number > self.number:
            return False
        is_seen = version is None or self.number <= version
        return is_seen and self.low <= key and (self.high is None or key < self.high)


@dataclass
class ModelTable:
    """Rows by job, deletes, and the versions that holds and the follower rely on."""

    id: str
    jobs: dict[str, ModelJob] = field(default_factory=dict)
    deletes: dict[str, ModelDelete] = field(default_factory=dict)
    holds: dict[str, tuple[int, int]] = field(default_factory=dict)
    follower: int | None = None

    def rows(self, version: int | None = None) -> Counter[Row]:
        """Returns the rows committed up to the version, without those deleted up to it."""
        counts: Counter[Row] = Counter()
        for job in self.jobs.values():
            number = job.number
            if number is not None and (version is None or number <= version):
                counts.update(
                    row
                    for row in job.rows
                    if not any(d.hides(row[0], number, version) for d in self.deletes.values())
                )
        return counts

    def rows_between(self, start: int, end: int) -> Counter[Row]:
        """Returns the rows added after one version, up to another, deleted since or not."""
        counts: Counter[Row] = Counter()
        for job in self.jobs.values():
            if job.number is not None and start < job.number <= end:
                counts.update(job.rows)
        return counts
