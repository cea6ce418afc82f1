"""The codec of a dataclass, and JSON text."""

import json
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

from sleeper.errors import InvalidRequestError, SleeperError
from sleeper.json_codec.annotations import object_codec
from sleeper.json_codec.mismatch import InvalidError, MismatchError, show

T = TypeVar("T")


class JsonCodec(Generic[T]):
    """Converts dataclass instances to JSON values and back. Members have the fields' names.

    If the `known` members are given, all others are errors.
    """

    def __init__(
        self, cls: type[T], rename: Callable[[str], str] = str, known: Collection[str] = ()
    ) -> None:
        self._encode, self._decode = object_codec(cls, rename)
        self._known = known

    def format(self, value: T) -> str:
        """Returns compact JSON text."""
        return json.dumps(self._encode(value), separators=(",", ":"))

    def parse(
        self, text: str, what: str, error_type: type[SleeperError] = InvalidRequestError
    ) -> T:
        """Returns the instance of JSON text, or raises an error as `from_json` does."""
        return self.from_json(parse_json(text, what, error_type), what, error_type)

    def to_json(self, value: T) -> dict[str, Any]:
        """Returns the members in their order."""
        encoded: dict[str, Any] = self._encode(value)
        return encoded

    def from_json(
        self, raw: Any, what: str, error_type: type[SleeperError] = InvalidRequestError
    ) -> T:
        """Returns the instance. An error names `what`, the member and the expected type.

        Errors that the class itself raises pass through.
        """
        try:
            return self.decode(raw)
        except MismatchError as error:
            raise error_type(f"{what}: {error}") from None

    def decode(self, raw: Any) -> T:
        """Returns the instance. Raises MismatchError, for use in a `Conversion`."""
        if self._known and isinstance(raw, dict):
            for name in raw:
                if name not in self._known:
                    problem = f"unknown member {show(name)} (expected {', '.join(self._known)})"
                    raise InvalidError(InvalidRequestError(problem))
        decoded: T = self._decode(raw)
        return decoded


def parse_json(
    text: str | bytes, what: str, error_type: type[SleeperError] = InvalidRequestError
) -> Any:
    """Returns the JSON value. An error names `what`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise error_type(f"{what} is not JSON: {error}") from error


def parse_object(text: str, what: str) -> dict[str, Any]:
    """Returns the members of a JSON object. InvalidRequestError names `what`."""
    raw = parse_json(text, what)
    if not isinstance(raw, dict):
        raise InvalidRequestError(f"{what}: {MismatchError(raw, 'an object')}")
    return raw


def camel_case(name: str) -> str:
    """Returns `table_id` as `tableId`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
