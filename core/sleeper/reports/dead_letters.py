"""The report on dead letters."""

from collections.abc import Mapping
from dataclasses import dataclass

from sleeper.errors import NotFoundError
from sleeper.instance import Instance
from sleeper.jobs.queue import DeadLetter, DeadLetters, MessageQueue, QueueCounts, QueueName
from sleeper.reports.output import Column, ColumnKind, Listing, counted

_COLUMNS_queues = (
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
            columns=_COLUMNS_queues,
            rows=tuple(
                (name, each.visible, each.in_flight, each.delayed, each.dead)
                for name, each in self.counts.items()
            ),
        )


def gather_queues(queues: Mapping[str, MessageQueue]) -> QueuesReport:
    """Asks each queue."""
    return QueuesReport({name: queue.counts() for name, queue in queues.items()})


_COLUMNS = (
    Column("queue", "Queue"),
    Column("message", "Message"),
    Column("receives", "Receives", ColumnKind.COUNT),
    Column("sent", "Sent", ColumnKind.TIME),
    Column("died", "Died", ColumnKind.TIME),
    Column("body", "Body"),
)


@dataclass(frozen=True, slots=True)
class DeadLettersReport:
    """Dead letters by queue, oldest first."""

    letters: Mapping[str, tuple[DeadLetter, ...]]

    def listing(self) -> Listing:
        """A row for each dead letter."""
        rows = tuple(
            (queue, letter.message_id, letter.receives, letter.sent_ms, letter.died_ms, letter.body)
            for queue, letters in sorted(self.letters.items())
            for letter in letters
        )
        return Listing(
            name="dead-letters",
            summary=counted(len(rows), "dead letter"),
            columns=_COLUMNS,
            rows=rows,
        )


def gather_dead_letters(queues: Mapping[str, DeadLetters], limit: int = 100) -> DeadLettersReport:
    """Asks each queue for its oldest dead letters."""
    return DeadLettersReport({name: letters.list(limit) for name, letters in queues.items()})


def list_dead_letters(instance: Instance, queue: str | None = None, limit: int = 100) -> Listing:
    """The oldest dead letters of the queue, or of each queue."""
    names = instance.jobs.queues if queue is None else (_queue(instance, queue),)
    letters = {name.value: instance.jobs.dead_letters(name) for name in names}
    return gather_dead_letters(letters, limit).listing()


def redrive_dead_letters(instance: Instance, queue: str) -> int:
    """Puts all dead letters back on their queue as never received. Returns how many."""
    return instance.jobs.dead_letters(_queue(instance, queue)).redrive()


def delete_dead_letter(instance: Instance, queue: str, message_id: str) -> None:
    """Takes one out for good. NotFoundError if there is none of that id."""
    instance.jobs.dead_letters(_queue(instance, queue)).delete(message_id)


def _queue(instance: Instance, name: str) -> QueueName:
    for each in instance.jobs.queues:
        if each.value == name:
            return each
    names = ", ".join(each.value for each in instance.jobs.queues)
    raise NotFoundError(f"unknown queue: {name!r} (expected one of {names})")
