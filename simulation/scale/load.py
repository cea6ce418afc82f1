"""The load of a simulation, which is a model: tables, their leaves, and what clients send."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Load:
    """The tables of an instance, and ingests of small files.

    `cohort` tables do the same at the same time: a message stands for one of each. `leaves` is
    their number in each table. An ingest writes `rows` rows to each leaf. Ingests of
    all tables together arrive at `ingests_second`, table by table.
    """

    tables: int = 1
    cohort: int = 1
    leaves: int = 1
    ingests_second: float = 0.0
    rows: int = 10_000

    @property
    def cohorts(self) -> int:
        """The number of cohorts."""
        return max(1, self.tables // self.cohort)


@dataclass(frozen=True, slots=True)
class Outage:
    """A time, in seconds since the start, in which no function and no task runs."""

    start: float
    end: float
