"""Members of JSON objects that callers send, checked one by one."""

from collections.abc import Collection, Mapping
from typing import Any

from sleeper.errors import InvalidRequestError

_NUMBER_MAX = 2**63 - 1


def check_members(raw: Mapping[str, Any], known: Collection[str]) -> None:
    """Raises `InvalidRequestError` for an unknown member, which may be misspelt."""
    for name in raw:
        if name not in known:
            raise InvalidRequestError(f"unknown member {name!r} (expected {', '.join(known)})")


def text_member(raw: Mapping[str, Any], name: str) -> str | None:
    """Returns a member that is a string; `None` if it is missing."""
    value = raw.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidRequestError(f'"{name}" must be text, not {value!r:.200}')
    return value


def boolean_member(raw: Mapping[str, Any], name: str) -> bool:
    """Returns a member that is true or false; `False` if it is missing."""
    value = raw.get(name)
    if value is not None and not isinstance(value, bool):
        raise InvalidRequestError(f'"{name}" must be true or false, not {value!r:.200}')
    return bool(value)


def number_member(raw: Mapping[str, Any], name: str, least: int) -> int | None:
    """Returns a member that is an integer of 64 bits; `None` if it is missing."""
    value = raw.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _NUMBER_MAX:
        raise InvalidRequestError(f'"{name}" must be an integer from {least} to 2^63-1')
    return value


def list_member(raw: Mapping[str, Any], name: str) -> list[Any]:
    """Returns a member that is a list; an empty list if it is missing."""
    value = raw.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidRequestError(f'"{name}" must be a list, not {value!r:.200}')
    return value


def text_list_member(raw: Mapping[str, Any], name: str) -> list[str]:
    """Returns a member that is a list of strings; an empty list if it is missing."""
    values = list_member(raw, name)
    if not all(isinstance(value, str) for value in values):
        raise InvalidRequestError(f'"{name}" must be a list of names')
    return values
