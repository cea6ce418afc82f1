"""The JSON values of filters.

They are as strict as documents are: names of members once, no NaN, no half of a surrogate pair. A
filter compares each document with all values in its own, so their number is bounded.
"""

import json
from typing import Any, NoReturn

from sleeper.errors import InvalidRequestError
from sleeper.lenient_json import is_unicode

_CHARACTERS_MAX = 64 * 1024
_VALUES_MAX = 100


def read_json_argument(what: str, text: str | None) -> str:
    """Returns the text of one JSON value. InvalidRequestError, which names `what`, for another."""
    if text is None:
        raise InvalidRequestError(f"{what}: no value (expected one of JSON)")
    if len(text) > _CHARACTERS_MAX:
        raise InvalidRequestError(
            f"{what}: a value of {len(text):,} characters (expected at most {_CHARACTERS_MAX:,})"
        )
    try:
        # Numbers stay text, because Python does not convert those of thousands of digits.
        value = json.loads(
            text,
            object_pairs_hook=_to_object,
            parse_int=str,
            parse_float=str,
            parse_constant=_refuse_constant,
        )
        _check_values(value)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{what}: invalid JSON {text[:200]!r}: {error}") from error
    return text


def _to_object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(members)
    if len(result) < len(members):
        names = [name for name, _ in members]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the member {twice[:200]!r} is there twice")
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _check_values(value: Any) -> None:
    """Raises ValueError for too many values, and for text that is not Unicode."""
    left, count = [value], 0
    while left:
        each = left.pop()
        count += 1
        if isinstance(each, dict):
            left += [*each, *each.values()]
            # A name is no value.
            count -= len(each)
        elif isinstance(each, list):
            left += each
        elif isinstance(each, str) and not is_unicode(each):
            raise ValueError("half of a surrogate pair")
    if count > _VALUES_MAX:
        raise ValueError(f"{count:,} values (expected at most {_VALUES_MAX})")
