"""JSON of users' messages, and the text in it.

Clients write messages with Gson, which reads a number or a flag where text is expected, and writes
whole numbers as `5.0`.
"""

import json
import math
from typing import Any

from sleeper.errors import InvalidRequestError

_ID_BYTES_MAX = 500


def parse_object(body: str, what: str) -> dict[str, Any]:
    """The members of a message that is called `what`. InvalidRequestError if it is no object."""
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{what} is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise InvalidRequestError(f"{what} must be a JSON object")
    return raw


def text_of(value: Any, what: str) -> str:
    """The text that a JSON value stands for: `5.0` is "5", `true` is "true".

    InvalidRequestError for null, a list, an object, or a number that is not finite.
    """
    match value:
        case str():
            check_text(value, what)
            return value
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return str(int(value)) if value.is_integer() else repr(value)
    raise InvalidRequestError(f"{what} must be text")


def optional_text(raw: dict[str, Any], member: str, what: str) -> str | None:
    """The text of a member, None if it is missing or null."""
    value = raw.get(member)
    return None if value is None else text_of(value, f'{what}: "{member}"')


def check_text(text: str, what: str) -> None:
    """InvalidRequestError for characters that no path, name or key of any store can have."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidRequestError(f"{what} has a character that is no text: {text[:100]!r}")


def check_id(value: str, what: str) -> None:
    """InvalidRequestError if it is too long for a part of a key."""
    if len(value.encode()) > _ID_BYTES_MAX:
        raise InvalidRequestError(f"{what} is longer than {_ID_BYTES_MAX} bytes")


def body_with_id(body: str, member: str, message_id: str) -> str:
    """Returns the body with the message's id as that member, unless the sender gave one.

    For a message that is sent again and so gets another id. A body that is not a JSON object is
    returned unchanged.
    """
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError):
        return body
    if not isinstance(raw, dict) or raw.get(member):
        return body
    return json.dumps({**raw, member: message_id}, separators=(",", ":"))
