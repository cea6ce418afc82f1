"""Members of JSON objects, checked."""

from typing import Any, TypeVar

from sleeper.errors import InvalidRequestError

T = TypeVar("T")


def member(raw: Any, name: str, kind: type[T], what: str) -> T:
    """The member, which must be of the kind; InvalidRequestError says of what it is missing."""
    value = raw.get(name) if isinstance(raw, dict) else None
    if isinstance(value, kind):
        return value
    found = "nothing" if value is None else repr(value)[:100]
    raise InvalidRequestError(
        f"{what} needs a member {name!r} of type {kind.__name__}, and has {found}"
    )


def number_member(raw: Any, name: str, what: str) -> int:
    """A whole number, which the protocol writes as a number or as text (Java's longs)."""
    value = raw.get(name) if isinstance(raw, dict) else None
    try:
        if isinstance(value, int | str) and not isinstance(value, bool):
            return int(value)
    except ValueError:
        pass
    raise InvalidRequestError(f"{what} needs a whole number as member {name!r}, and has {value!r}")


def optional_text(raw: Any, name: str, what: str) -> str | None:
    """A text, or None if it is missing or null."""
    return None if raw.get(name) is None else member(raw, name, str, what)
