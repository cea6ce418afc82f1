"""Streams of shards as input of adjunct stores: Kinesis, and the streams of DynamoDB.

A shard is a partition whose *parents* are read before it. The offset after a message is its
sequence number plus one. The services do not say if messages after a sequence number are gone, so
positions have the time at which a store had all messages: none can be gone of what arrived since,
until the *retention* has passed.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sleeper.adjunct.extraction import Envelope
from sleeper.adjunct.inputs.log import FINISHED, LogBatch
from sleeper.clock import Clock, system_clock
from sleeper.errors import DataError, StateMovedOnError

_READ_MS = "read_ms"
_CREATED = "created"
_LIST_SECONDS = 10.0
# Each shard serves five requests per second, to all its readers.
_REQUEST_SECONDS = 0.25
_BATCH_MESSAGES = 4_096


class ExpiredIteratorError(Exception):
    """An iterator was not used for some minutes: get another one."""


class TrimmedError(Exception):
    """The message of the sequence number is not kept any more."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard, and those that it continues."""

    id: str
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShardPage:
    """Messages of a shard, as functions that decode them, with DataError.

    `iterator` reads on; it is None after the last message of a closed shard. `is_end` means that
    there was nothing newer.
    """

    messages: Sequence[Callable[[], Envelope]]
    iterator: str | None
    is_end: bool


class ShardService(Protocol):
    """Requests to one stream.

    `created` names its creation, which was at `created_ms`; `retention_ms` is how long it keeps
    messages. The first listing of shards finds them.
    """

    name: str
    created: str
    created_ms: int
    retention_ms: int

    def list_shards(self) -> Sequence[Shard]:
        """Returns all shards that have messages. NotFoundError if there is no such stream."""

    def find_iterator(self, shard: str, offset: str | None) -> str:
        """Returns what reads a shard after a sequence number, or from its oldest message.

        TrimmedError if the service says that the message is gone.
        """

    def read(self, shard: str, iterator: str) -> ShardPage:
        """Returns the next messages. ExpiredIteratorError if the iterator is too old."""

    def snapshot(self) -> Iterator[Sequence[Envelope]]:
        """See `LogInput`."""


@dataclass(slots=True)
class _Iterator:
    """How far a shard was read: `position` is the offset at which the iterator reads."""

    position: str | None
    iterator: str
    read_at: float


class ShardedLog:
    """See `LogInput`, which this implements with the requests of a service."""

    has_fixed_partitions = False

    def __init__(
        self, service: ShardService, has_snapshot: bool, clock: Clock = system_clock
    ) -> None:
        self.name = service.name
        self.has_snapshot = has_snapshot
        self._service = service
        self._clock = clock
        self._shards: dict[str, Shard] = {}
        self._listed_at = -_LIST_SECONDS
        self._iterators: dict[str, _Iterator] = {}

    def partitions(self, positions: Mapping[str, str]) -> Sequence[str]:
        shards = self._list()
        return [
            each.id
            for each in shards.values()
            if positions.get(each.id) != FINISHED
            and all(p not in shards or positions.get(p) == FINISHED for p in each.parents)
        ]

    def newest(self, positions: Mapping[str, str]) -> Mapping[str, str]:
        """See the protocol. The services do not say where a shard ends."""
        shards = self._list()
        created = positions.get(_CREATED, self._service.created)
        if created != self._service.created:
            raise StateMovedOnError(f"{self.name}: it was deleted and created again")
        for shard, position in positions.items():
            is_open = shard not in (_CREATED, _READ_MS) and position != FINISHED
            if is_open and shard not in shards:
                self._check_age(positions, shard)
        return {}

    def is_whole(self) -> bool:
        """See the protocol. Sequence numbers do not say which message was the first."""
        self._list()
        age_ms = self._clock() - self._service.created_ms
        return self.has_snapshot or age_ms < self._service.retention_ms

    def complete(self, positions: Mapping[str, str], read_ms: int) -> dict[str, str]:
        shards = self._list()
        kept = {each: at for each, at in positions.items() if each in shards}
        return {**kept, _CREATED: self._service.created, _READ_MS: str(read_ms)}

    def snapshot(self) -> Iterator[Sequence[Envelope]]:
        self._list()
        started_ms = self._clock()
        for page in self._service.snapshot():
            yield page
            if self._clock() - started_ms > self._service.retention_ms:
                raise StateMovedOnError(
                    f"{self.name}: reading all data took longer than its changes are kept"
                )

    def poll(self, positions: Mapping[str, str], partitions: Sequence[str]) -> LogBatch:
        """See the protocol. Reads the shards in turn, the one read longest ago first."""
        order = sorted(partitions, key=self._read_at)
        if order:
            time.sleep(max(self._read_at(order[0]) + _REQUEST_SECONDS - time.monotonic(), 0))
        envelopes: list[Envelope] = []
        after: dict[str, str] = {}
        ended: set[str] = set()
        for shard in order:
            is_recent = time.monotonic() < self._read_at(shard) + _REQUEST_SECONDS
            if is_recent or len(envelopes) >= _BATCH_MESSAGES:
                break
            try:
                envelopes_read, position, is_end = self._read_on(shard, positions)
            except DataError:
                if not after:
                    raise
                break
            envelopes += envelopes_read
            if position is not None and position != positions.get(shard):
                after[shard] = position
            if is_end:
                ended.add(shard)
        return LogBatch(envelopes, after, frozenset(ended))

    def close(self) -> None:
        """Does nothing: the clients belong to the process."""

    def _read_on(
        self, shard: str, positions: Mapping[str, str]
    ) -> tuple[list[Envelope], str | None, bool]:
        """Returns the next messages of a shard, the position after them, and if it ended there."""
        page = self._read(shard, positions)
        self._iterators.pop(shard, None)
        envelopes_read, is_whole = _decode(page)
        position = envelopes_read[-1].next_offset if envelopes_read else positions.get(shard)
        if not is_whole:
            return envelopes_read, position, False
        if page.iterator is None:
            self._listed_at = -_LIST_SECONDS  # for the shards that continue it
            return envelopes_read, FINISHED, True
        self._iterators[shard] = _Iterator(position, page.iterator, time.monotonic())
        return envelopes_read, position, page.is_end

    def _read(self, shard: str, positions: Mapping[str, str]) -> ShardPage:
        position, kept = positions.get(shard), self._iterators.get(shard)
        if kept is not None and kept.position == position:
            try:
                return self._service.read(shard, kept.iterator)
            except ExpiredIteratorError:
                pass
        if position is None:
            return self._service.read(shard, self._service.find_iterator(shard, None))
        try:
            iterator = self._service.find_iterator(shard, previous_offset(position))
        except TrimmedError:
            self._check_age(positions, shard)
            iterator = self._service.find_iterator(shard, None)
        return self._service.read(shard, iterator)

    def _check_age(self, positions: Mapping[str, str], shard: str) -> None:
        """Raises StateMovedOnError if messages may be gone that were not read."""
        age_ms = self._clock() - int(positions.get(_READ_MS, 0))
        if age_ms > self._service.retention_ms:
            raise StateMovedOnError(
                f"{self.name}, partition {shard}: messages after offset {positions[shard]} may be "
                f"gone (expected those of {self._service.retention_ms / 3_600_000:g} h)"
            )

    def _list(self) -> dict[str, Shard]:
        if time.monotonic() >= self._listed_at + _LIST_SECONDS:
            self._shards = {each.id: each for each in self._service.list_shards()}
            self._listed_at = time.monotonic()
        return self._shards

    def _read_at(self, shard: str) -> float:
        kept = self._iterators.get(shard)
        return -_REQUEST_SECONDS if kept is None else kept.read_at


def next_offset(offset: str) -> str:
    """Returns the offset after a sequence number, with its zeros in front."""
    return str(int(offset) + 1).zfill(_padding(offset))


def previous_offset(position: str) -> str:
    """Returns the sequence number before a position."""
    return str(int(position) - 1).zfill(_padding(position))


def _padding(number: str) -> int:
    return len(number) if number.startswith("0") else 0


def _decode(page: ShardPage) -> tuple[list[Envelope], bool]:
    """Returns the messages up to one that cannot be decoded, and whether these are all.

    If it is the first, its error is raised.
    """
    envelopes_read: list[Envelope] = []
    for decode in page.messages:
        try:
            envelopes_read.append(decode())
        except DataError:
            if not envelopes_read:
                raise
            return envelopes_read, False
    return envelopes_read, True
