"""The formats of keys and values of messages."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from sleeper.adjunct.envelope import Envelope
from sleeper.errors import DataError

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
        found = _decode_json(content)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.keys() != {MARKER}:
        return None
    return str(found[MARKER])


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
