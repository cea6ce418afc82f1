"""The port of logs: streams of ordered partitions, such as a topic of Kafka."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sleeper.adjunct.envelope import Envelope

FINISHED = "finished"
"""The position in a partition that was closed and read completely."""


@dataclass(frozen=True, slots=True)
class LogBatch:
    """What was read at once: `envelopes`, those of a partition in order.

    `positions` has the place after them for each partition that was read further, which may be
    after messages that no reader sees. `ended` are the partitions that had nothing newer.
    """

    envelopes: Sequence[Envelope] = ()
    positions: Mapping[str, str] = field(default_factory=dict)
    ended: frozenset[str] = frozenset()


class LogInput(Protocol):
    """A stream that keeps its messages for a while.

    `positions` has the offset of the next unread message by partition, and marks of the stream. A
    partition without a position is read from its oldest message. Offsets are decimal numbers in
    their order, or FINISHED. If it `has_fixed_partitions`, messages with equal keys stay in one of
    them. `has_snapshot` means that the stream changes data that `snapshot` returns.

    Raises UnavailableError if the service does not respond, NotFoundError if there is no such
    stream, and DataError, naming the place, for a message that cannot be decoded.
    """

    @property
    def name(self) -> str: ...

    @property
    def has_fixed_partitions(self) -> bool: ...

    @property
    def has_snapshot(self) -> bool: ...

    def partitions(self, positions: Mapping[str, str]) -> Sequence[str]:
        """Returns the partitions to read now, without those that are finished.

        One that continues others follows when these are finished.
        """

    def newest(self, positions: Mapping[str, str]) -> Mapping[str, str]:
        """Returns the offset after the newest message of each partition, where it is known.

        StateMovedOnError if messages after the positions are not kept any more, or if the stream
        was created again.
        """

    def is_whole(self) -> bool:
        """Returns whether the oldest messages are the first ones that were ever sent."""

    def complete(self, positions: Mapping[str, str], read_ms: int) -> dict[str, str]:
        """Returns the positions that a store saves, which had all messages at `read_ms`.

        They have the marks, and no partitions that are gone.
        """

    def snapshot(self) -> Iterator[Sequence[Envelope]]:
        """Yields all data, as old as or newer than the oldest message of the stream."""

    def poll(self, positions: Mapping[str, str], partitions: Sequence[str]) -> LogBatch:
        """Returns the next messages of the partitions, or none after about a second.

        StateMovedOnError as `newest`.
        """

    def close(self) -> None:
        """Closes connections. Idempotent."""


def is_reached(position: str | None, end: str | None) -> bool:
    """Returns whether a position is at the end or after it. False if one of them is unknown."""
    if position is None or end is None:
        return False
    return position == FINISHED or int(position) >= int(end)
