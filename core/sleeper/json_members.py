"""Members of JSON objects that callers send, checked one by one."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from sleeper.errors import InvalidRequestError

_NUMBER_MAX = 2**63 - 1
_NO_LETTER = re.compile(r"[^a-z]")
_SELECTIVE_WORD = re.compile(
    "sql|where|filter|predicate|condition|expression|iterat|aggregat|group|having|distinct|dedup|"
    "limit|offset|skip|order|sort|sample|region|range|rows|keys|rowkey|field|column|project|select|"
    "partition|querytime|asof|snapshot|before|after"
)
_SELECTIVE_NAME = re.compile("key|from|to|min|max|start|end|since|until|top|first|last|version")


def check_members(raw: Mapping[str, Any], known: Collection[str]) -> None:
    """Raises `InvalidRequestError` for an unknown member, which may be misspelt."""
    for name in raw:
        if name not in known:
            raise InvalidRequestError(f"unknown member {name!r} (expected {', '.join(known)})")


def check_selective_members(raw: Mapping[str, Any], known: Collection[str], what: str) -> None:
    """Raises InvalidRequestError for an unknown member that would narrow or change a result.

    Such a member is misspelt, or belongs to a later version of the client's format. It is
    recognised by its name. Other unknown members, and empty ones, are ignored.
    """
    for name, value in raw.items():
        if name in known or value in (None, ""):
            continue
        letters = _NO_LETTER.sub("", name.lower())
        if _SELECTIVE_WORD.search(letters) or _SELECTIVE_NAME.fullmatch(letters):
            raise InvalidRequestError(
                f"{what}: {name[:200]!r} is not supported, and would change the result "
                f"(expected {', '.join(known)})"
            )


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
