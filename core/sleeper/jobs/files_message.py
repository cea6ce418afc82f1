"""Messages that name files of a table (docs/formats.md, "Message conventions").

Whoever sends them may be anybody, so each member is checked before it goes anywhere.
"""

import json
import math
from dataclasses import dataclass
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.jobs.queue import MESSAGE_BYTES_MAX

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


@dataclass(frozen=True, slots=True)
class FilesMessage:
    """Files, maybe none, for a table that is named by its name or its id.

    `id` is the job's, or another that the message is known by.
    """

    files: tuple[str, ...]
    table_name: str | None
    table_id: str | None
    id: str | None


def parse_files_message(body: str, what: str, id_member: str = "id") -> FilesMessage:
    """Parses a message that is called `what`. Unknown members are ignored.

    InvalidRequestError says which member is wrong.
    """
    check_message_size(body, what)
    raw = parse_object(body, what)
    files = raw.get("files")
    if not isinstance(files, list):
        raise InvalidRequestError(f'{what}: "files" must be a list of paths')
    name, table_id = (optional_text(raw, member, what) for member in ("tableName", "tableId"))
    if name is None and table_id is None:
        raise InvalidRequestError(f'{what}: "tableName" or "tableId" is missing')
    paths = tuple(text_of(file, f"{what}: a path") for file in files)
    return FilesMessage(paths, name, table_id, optional_text(raw, id_member, what))


def check_message_size(body: str, what: str) -> None:
    """InvalidRequestError if no queue takes it."""
    size = len(body.encode(errors="replace"))
    if size > MESSAGE_BYTES_MAX:
        raise InvalidRequestError(
            f"{what} of {size:,} bytes is over the limit of {MESSAGE_BYTES_MAX:,}: "
            "send several, or a folder instead of its files"
        )
