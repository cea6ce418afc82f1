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
class ModelTable:
    """Rows by job, and the versions that holds and the follower rely on."""

    id: str
    jobs: dict[str, ModelJob] = field(default_factory=dict)
    holds: dict[str, tuple[int, int]] = field(default_factory=dict)
    follower: int | None = None

    def rows(self, version: int | None = None) -> Counter[Row]:
        """Returns the rows committed up to the version."""
        counts: Counter[Row] = Counter()
        for job in self.jobs.values():
            if job.number is not None and (version is None or job.number <= version):
                counts.update(job.rows)
        return counts

    def rows_between(self, start: int, end: int) -> Counter[Row]:
        """Returns the rows committed after one version, up to another."""
        return self.rows(end) - self.rows(start)
