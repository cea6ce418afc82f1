"""A log in memory, and the input that reads it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sleeper.adjunct.extraction import Envelope
from sleeper.adjunct.inputs.log import FINISHED, LogBatch
from sleeper.errors import StateMovedOnError, UnavailableError


@dataclass
class FakePartition:
    """The messages of a partition: key, value, and whether it is a marker."""

    messages: list[tuple[Any, Any, bool]] = field(default_factory=list)
    times_ms: dict[int, int] = field(default_factory=dict)
    oldest: int = 0
    parents: tuple[str, ...] = ()
    is_closed: bool = False


class FakeLog:
    """A stream. `failures` are errors that the next calls of its readers raise.

    Messages have the time `now_ms`, unless it is None.
    """

    def __init__(self, partitions: int = 2, name: str = "fake") -> None:
        self.name = name
        self.partitions = {str(number): FakePartition() for number in range(partitions)}
        self.items: dict[Any, Any] | None = None
        self.failures: list[Exception] = []
        self.reads: list[str] = []
        self.now_ms: int | None = None

    def send(self, key: Any, value: Any, partition: int | str | None = None) -> None:
        """Adds a message. Keys have their partition, unless one is given."""
        if partition is None:
            partition = sum(str(key).encode()) % len(self.partitions)
        messages = self.partitions[str(partition)].messages
        if self.now_ms is not None:
            self.partitions[str(partition)].times_ms[len(messages)] = self.now_ms
        messages.append((key, value, False))

    def end(self, name: str, *partitions: int | str) -> None:
        """Adds the marker of a dataset to partitions, all by default."""
        for each in partitions or self.partitions:
            self.partitions[str(each)].messages.append((None, name, True))

    def trim(self, partition: int | str, oldest: int) -> None:
        """Forgets the messages before an offset."""
        self.partitions[str(partition)].oldest = oldest

    def split(self, parent: str, *children: str) -> None:
        """Closes a partition, and adds those that continue it."""
        self.partitions[parent].is_closed = True
        for each in children:
            self.partitions[each] = FakePartition(parents=(parent,))

    def fold(self) -> dict[Any, Any]:
        """Returns the values that a load must have."""
        values: dict[Any, Any] = dict(self.items or {})
        for partition in self.partitions.values():
            for key, value, is_end in partition.messages[partition.oldest :]:
                if key is None or is_end:
                    continue
                values.pop(key, None)
                if value is not None:
                    values[key] = value
        return values


class FakeLogInput:
    """See `LogInput`. `reads` of the log records the offset of each message that was read."""

    def __init__(self, log: FakeLog, batch_messages: int = 3, is_fixed: bool = True) -> None:
        self.name = log.name
        self.has_fixed_partitions = is_fixed
        self.log = log
        self.is_closed = False
        self._batch_messages = batch_messages

    @property
    def has_snapshot(self) -> bool:
        return self.log.items is not None

    def partitions(self, positions: Mapping[str, str]) -> Sequence[str]:
        return [
            name
            for name, each in self.log.partitions.items()
            if positions.get(name) != FINISHED
            and all(positions.get(parent) == FINISHED for parent in each.parents)
        ]

    def newest(self, positions: Mapping[str, str]) -> Mapping[str, str]:
        self._fail()
        for name, each in self.log.partitions.items():
            self._check(name, each, positions.get(name))
        return {name: str(len(each.messages)) for name, each in self.log.partitions.items()}

    def is_whole(self) -> bool:
        return not any(each.oldest for each in self.log.partitions.values())

    def complete(self, positions: Mapping[str, str], read_ms: int) -> dict[str, str]:
        return {**positions, "read_ms": str(read_ms)}

    def snapshot(self) -> Iterator[Sequence[Envelope]]:
        for key, value in (self.log.items or {}).items():
            yield [Envelope(self.name, "items", "0", "0", key, value)]

    def poll(self, positions: Mapping[str, str], partitions: Sequence[str]) -> LogBatch:
        self._fail()
        found: list[Envelope] = []
        after: dict[str, str] = {}
        ended: set[str] = set()
        for name in partitions:
            each = self.log.partitions[name]
            self._check(name, each, positions.get(name))
            start = int(positions.get(name, each.oldest))
            end = min(start + self._batch_messages, len(each.messages))
            for offset in range(start, end):
                key, value, is_end = each.messages[offset]
                place = (name, str(offset), str(offset + 1))
                time_ms = each.times_ms.get(offset)
                found.append(Envelope(self.name, *place, key, value, is_end, time_ms))
                self.log.reads.append(f"{name}:{offset}")
            after[name] = str(end)
            if end == len(each.messages):
                ended.add(name)
                if each.is_closed:
                    after[name] = FINISHED
        return LogBatch(found, after, frozenset(ended))

    def close(self) -> None:
        self.is_closed = True

    def _fail(self) -> None:
        if self.log.failures:
            raise self.log.failures.pop(0)

    def _check(self, name: str, partition: FakePartition, position: str | None) -> None:
        if position is None or position == FINISHED:
            return
        if int(position) < partition.oldest:
            raise StateMovedOnError(f"fake, partition {name}: messages were trimmed")
        if int(position) > len(partition.messages):
            raise StateMovedOnError(f"fake, partition {name}: it went back")


def unavailable() -> UnavailableError:
    """Returns the error of a log that does not respond."""
    return UnavailableError("fake does not respond")
