"""The port of logs: streams of ordered partitions, such as a topic of Kafka."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl

import msgspec

from sleeper.adjunct.extraction import Envelope
from sleeper.errors import DataError, InvalidRequestError, did_you_mean

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


MARKER = "sleeper-end-of-dataset"
"""What marks the end of a dataset: a header of Kafka, or the only member of a JSON object."""

_LONG_BYTES = 8


class KeyFormat(StrEnum):
    """The format of keys: UTF-8 text, an integer, or bytes.

    An integer has 8 bytes with the highest first, as Java's producers write it; where keys are
    always text, it has decimal digits.
    """

    TEXT = "text"
    LONG = "long"
    BYTES = "bytes"


class ValueFormat(StrEnum):
    """The format of values: JSON, UTF-8 text, or bytes."""

    JSON = "json"
    TEXT = "text"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class MessageFormat:
    """The formats of the messages of a stream."""

    key: KeyFormat = KeyFormat.TEXT
    value: ValueFormat = ValueFormat.JSON

    def decode_key(self, content: bytes | str | None) -> Any:
        """Returns the key. ValueError if it has another format."""
        if content is None:
            return None
        match self.key:
            case KeyFormat.LONG:
                return _decode_long(content)
            case KeyFormat.TEXT:
                return content if isinstance(content, str) else content.decode()
            case KeyFormat.BYTES:
                return content.encode() if isinstance(content, str) else content

    def decode_value(self, content: bytes | None) -> Any:
        """Returns the value. ValueError if it has another format."""
        if content is None:
            return None
        match self.value:
            case ValueFormat.JSON:
                return _decode_json(content)
            case ValueFormat.TEXT:
                return content.decode()
            case ValueFormat.BYTES:
                return content


def parse_marker(content: bytes) -> str | None:
    """Returns the name of the dataset if a message's JSON marks its end, None otherwise."""
    if MARKER.encode() not in content:
        return None
    try:
        decoded = _decode_json(content)
    except ValueError:
        return None
    if not isinstance(decoded, dict) or decoded.keys() != {MARKER}:
        return None
    return str(decoded[MARKER])


def decode_message(
    stream: str, partition: str, offset: str, decode: Callable[[], Envelope]
) -> Envelope:
    """Returns the envelope of a message. DataError, naming its place, if it cannot be decoded."""
    try:
        return decode()
    except ValueError as error:
        raise DataError(
            f"{stream}, partition {partition}, offset {offset}: the message cannot be decoded: "
            f"{error}"
        ) from error


def _decode_json(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"value: {error} (expected JSON)") from error


def _decode_long(content: bytes | str) -> int:
    if isinstance(content, str):
        digits = content.removeprefix("-")
        if not digits.isdecimal() or not digits.isascii():
            raise ValueError(f"key {content!r:.100} (expected an integer)")
        return int(content)
    if len(content) != _LONG_BYTES:
        raise ValueError(f"key of {len(content)} bytes (expected an integer of {_LONG_BYTES})")
    return int.from_bytes(content, "big", signed=True)


DATASET = "dataset"
FORMAT_OPTIONS = frozenset({"key", "value"})

Choice = TypeVar("Choice", bound=StrEnum)


class _Dataset(StrEnum):
    UNBOUNDED = "unbounded"
    BOUNDED = "bounded"


@dataclass(frozen=True, slots=True)
class StreamName:
    """A stream: its target after the kind, and its options. `where` begins error messages."""

    where: str
    target: str
    options: Mapping[str, str]

    @property
    def is_bounded(self) -> bool:
        """Whether the stream delivers whole datasets. InvalidRequestError for another value."""
        return self._choose(DATASET, _Dataset.UNBOUNDED) is _Dataset.BOUNDED

    def message_format(self) -> MessageFormat:
        """Returns the formats of keys and values. InvalidRequestError for another value."""
        return MessageFormat(
            self._choose("key", KeyFormat.TEXT), self._choose("value", ValueFormat.JSON)
        )

    def check_options(self, allowed: Collection[str]) -> None:
        """Raises InvalidRequestError for an option of another name."""
        for name in self.options:
            if name not in allowed:
                expected = f"one of: {', '.join(sorted(allowed))}" if allowed else "none"
                raise InvalidRequestError(
                    f"{self.where}: unknown option {name!r}{did_you_mean(name, allowed)} (expected "
                    f"{expected})"
                )

    def _choose(self, name: str, default: Choice) -> Choice:
        text = self.options.get(name, default.value)
        try:
            return type(default)(text)
        except ValueError:
            raise InvalidRequestError(
                f"{self.where}: option {name} is {text!r} (expected one of: "
                f"{', '.join(type(default))})"
            ) from None


def parse_stream_name(store: str, kind: str, text: str) -> StreamName:
    """Returns the stream of `TARGET` or `TARGET?OPTION=VALUE&…`. InvalidRequestError otherwise."""
    target, separator, query = text.partition("?")
    where = f"store {store!r}: input {kind}:{target}"
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(separator))
    except ValueError:
        pairs = None
    if pairs is None or not target or len(dict(pairs)) != len(pairs):
        raise InvalidRequestError(
            f"{where}: its options are invalid (expected ?NAME=VALUE&NAME=VALUE, each name once)"
        )
    return StreamName(where, target, dict(pairs))
