"""What a table must hold, as plain Python."""

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
    """Rows by job; holds and the follower, with what they may count on."""

    id: str
    jobs: dict[str, ModelJob] = field(default_factory=dict)
    holds: dict[str, tuple[int, int]] = field(default_factory=dict)
    follower: int | None = None

    def rows(self, version: int | None = None) -> Counter[Row]:
        """What was committed up to the version."""
        found: Counter[Row] = Counter()
        for job in self.jobs.values():
            if job.number is not None and (version is None or job.number <= version):
                found.update(job.rows)
        return found

    def rows_between(self, after: int, to: int) -> Counter[Row]:
        """What was committed after one version, up to another."""
        return self.rows(to) - self.rows(after)
