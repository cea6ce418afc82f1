"""The report on queues: how many messages each holds."""

from collections.abc import Mapping
from dataclasses import dataclass

from sleeper.jobs.queue import MessageQueue, QueueCounts
from sleeper.reports.listing import Column, ColumnKind, Listing, counted

_COLUMNS = (
    Column("queue", "Queue"),
    Column("visible", "Waiting", ColumnKind.COUNT),
    Column("in_flight", "In flight", ColumnKind.COUNT),
    Column("delayed", "Delayed", ColumnKind.COUNT),
    Column("dead", "Dead letters", ColumnKind.COUNT),
)


@dataclass(frozen=True, slots=True)
class QueuesReport:
    """What each queue holds, about."""

    counts: Mapping[str, QueueCounts]

    def listing(self) -> Listing:
        """A row for each queue."""
        unfinished = sum(each.unfinished for each in self.counts.values())
        dead = sum(each.dead for each in self.counts.values())
        return Listing(
            name="queues",
            summary=f"{counted(unfinished, 'message')}, {counted(dead, 'dead letter')}",
            columns=_COLUMNS,
            rows=tuple(
                (name, each.visible, each.in_flight, each.delayed, each.dead)
                for name, each in self.counts.items()
            ),
        )


def gather_queues(queues: Mapping[str, MessageQueue]) -> QueuesReport:
    """Asks each queue."""
    return QueuesReport({name: queue.counts() for name, queue in queues.items()})
