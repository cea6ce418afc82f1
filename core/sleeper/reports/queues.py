"""The reports on queues and on dead letters."""

from collections.abc import Mapping
from dataclasses import dataclass

from sleeper.errors import NotFoundError
from sleeper.instance import Instance
from sleeper.jobs.queue import DeadLetter, DeadLetters, MessageQueue, QueueCounts, QueueName
from sleeper.reports.output import Column, ColumnKind, Listing, pluralize

_QUEUE_COLUMNS = (
    Column("queue", "Queue"),
    Column("visible", "Waiting", ColumnKind.COUNT),
    Column("in_flight", "In flight", ColumnKind.COUNT),
    Column("delayed", "Delayed", ColumnKind.COUNT),
    Column("dead", "Dead letters", ColumnKind.COUNT),
)
_DEAD_LETTER_COLUMNS = (
    Column("queue", "Queue"),
    Column("message", "Message"),
    Column("receives", "Receives", ColumnKind.COUNT),
    Column("sent", "Sent", ColumnKind.TIME),
    Column("died", "Died", ColumnKind.TIME),
    Column("body", "Body"),
)


@dataclass(frozen=True, slots=True)
class QueuesReport:
    """Approximate numbers of messages by queue."""

    counts: Mapping[str, QueueCounts]

    def listing(self) -> Listing:
        """Returns a row per queue."""
        unfinished = sum(each.unfinished for each in self.counts.values())
        dead = sum(each.dead for each in self.counts.values())
        return Listing(
            name="queues",
            summary=f"{pluralize(unfinished, 'message')}, {pluralize(dead, 'dead letter')}",
            columns=_QUEUE_COLUMNS,
            rows=tuple(
                (name, each.visible, each.in_flight, each.delayed, each.dead)
                for name, each in self.counts.items()
            ),
        )


@dataclass(frozen=True, slots=True)
class DeadLettersReport:
    """Dead letters by queue, oldest first."""

    letters: Mapping[str, tuple[DeadLetter, ...]]

    def listing(self) -> Listing:
        """Returns a row per dead letter."""
        rows = tuple(
            (queue, letter.message_id, letter.receives, letter.sent_ms, letter.died_ms, letter.body)
            for queue, letters in sorted(self.letters.items())
            for letter in letters
        )
        return Listing(
            name="dead-letters",
            summary=pluralize(len(rows), "dead letter"),
            columns=_DEAD_LETTER_COLUMNS,
            rows=rows,
        )


def gather_queues(queues: Mapping[str, MessageQueue]) -> QueuesReport:
    """Reads the message counts of each queue."""
    return QueuesReport({name: queue.counts() for name, queue in queues.items()})


def gather_dead_letters(queues: Mapping[str, DeadLetters], limit: int = 100) -> DeadLettersReport:
    """Reads the oldest dead letters of each queue, up to `limit` per queue."""
    return DeadLettersReport({name: letters.list(limit) for name, letters in queues.items()})


def list_dead_letters(instance: Instance, queue: str | None = None, limit: int = 100) -> Listing:
    """Lists the oldest dead letters of one queue or of all."""
    names = instance.jobs.queues if queue is None else (_find_queue(instance, queue),)
    letters = {name.value: instance.jobs.dead_letters(name) for name in names}
    return gather_dead_letters(letters, limit).listing()


def redrive_dead_letters(instance: Instance, queue: str) -> int:
    """Returns all dead letters to their queue with a receive count of 0; returns their number."""
    return instance.jobs.dead_letters(_find_queue(instance, queue)).redrive()


def delete_dead_letter(instance: Instance, queue: str, message_id: str) -> None:
    """Deletes a dead letter. NotFoundError if the id is unknown."""
    instance.jobs.dead_letters(_find_queue(instance, queue)).delete(message_id)


def _find_queue(instance: Instance, name: str) -> QueueName:
    for each in instance.jobs.queues:
        if each.value == name:
            return each
    names = ", ".join(each.value for each in instance.jobs.queues)
    raise NotFoundError(f"unknown queue: {name!r} (expected one of {names})")
