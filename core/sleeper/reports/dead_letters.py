"""The report on dead letters."""

from collections.abc import Mapping
from dataclasses import dataclass

from sleeper.jobs.queue import DeadLetter, DeadLetters
from sleeper.reports.listing import Column, ColumnKind, Listing, counted

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
