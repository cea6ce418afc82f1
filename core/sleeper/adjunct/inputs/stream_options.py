"""The text that names a stream, such as `kafka://broker:9092/prices?value=text`."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar
from urllib.parse import parse_qsl

from sleeper.adjunct.inputs.message_format import KeyFormat, MessageFormat, ValueFormat
from sleeper.errors import InvalidRequestError, did_you_mean

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

    def check_options(self, known: Collection[str]) -> None:
        """Raises InvalidRequestError for an option of another name."""
        for name in self.options:
            if name not in known:
                expected = f"one of: {', '.join(sorted(known))}" if known else "none"
                raise InvalidRequestError(
                    f"{self.where}: unknown option {name!r}{did_you_mean(name, known)} (expected "
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
