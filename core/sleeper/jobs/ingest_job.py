"""Ingest jobs, and the validation of messages with files of a table.

Formats: docs/formats.md, "Message conventions" and "Ingest messages". Senders are not trusted, so
each member is validated before use.
"""

import json
import math
import uuid
from dataclasses import dataclass
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.jobs.queue import MESSAGE_BYTES_MAX

_ID_BYTES_MAX = 500


def parse_object(body: str, what: str) -> dict[str, Any]:
    """Returns the members of a message. InvalidRequestError, which names `what`, if it has none."""
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{what} is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise InvalidRequestError(f"{what} must be a JSON object")
    return raw


def text_of(value: Any, what: str) -> str:
    """Returns a JSON value as text: `5.0` as "5", `true` as "true".

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
    """Returns the text of a member, None if it is missing or null."""
    value = raw.get(member)
    return None if value is None else text_of(value, f'{what}: "{member}"')


def check_text(text: str, what: str) -> None:
    """Raises InvalidRequestError for characters that no path, name or key can have."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidRequestError(f"{what} has a character that is no text: {text[:100]!r}")


def check_id(value: str, what: str) -> None:
    """Raises InvalidRequestError if the id is too long for a part of a key."""
    if len(value.encode()) > _ID_BYTES_MAX:
        raise InvalidRequestError(f"{what} is longer than {_ID_BYTES_MAX} bytes")


def body_with_id(body: str, member: str, message_id: str) -> str:
    """Returns the body with the message's id as that member, unless it has one.

    Sending a message again changes its id. A body that is not a JSON object is returned unchanged.
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
    """Files, maybe none, of a table with a name or an id.

    `id` is the job's id, or another id of the message.
    """

    files: tuple[str, ...]
    table_name: str | None
    table_id: str | None
    id: str | None


def parse_files_message(body: str, what: str, id_member: str = "id") -> FilesMessage:
    """Parses a message. Ignores unknown members.

    InvalidRequestError names `what` and the invalid member.
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
    """Raises InvalidRequestError if the message exceeds the limit of queues."""
    size = len(body.encode(errors="replace"))
    if size > MESSAGE_BYTES_MAX:
        raise InvalidRequestError(
            f"{what} of {size:,} bytes is over the limit of {MESSAGE_BYTES_MAX:,}: "
            "send several, or a folder instead of its files"
        )


_WHAT = "ingest message"


@dataclass(frozen=True, slots=True)
class IngestJob:
    """An ingest of files into the table with `table_name` or `table_id`."""

    id: str
    files: tuple[str, ...]
    table_name: str | None = None
    table_id: str | None = None

    @property
    def request(self) -> str:
        """The job's request, which a repetition of its id must equal."""
        return json.dumps(sorted(self.files), separators=(",", ":"))

    def to_message(self) -> str:
        """Returns the message's body. InvalidRequestError if it is too large."""
        raw: dict[str, Any] = {"id": self.id, "files": list(self.files)}
        if self.table_name is not None:
            raw["tableName"] = self.table_name
        if self.table_id is not None:
            raw["tableId"] = self.table_id
        body = json.dumps(raw, separators=(",", ":"))
        check_message_size(body, _WHAT)
        return body


def new_job_id() -> str:
    """Returns a random id for a job without one."""
    return uuid.uuid4().hex


def ingest_job_from_message(body: str, message_id: str) -> IngestJob:
    """Parses a message. The message's id replaces a missing job id. Ignores unknown members.

    InvalidRequestError names an invalid member.
    """
    message = parse_files_message(body, _WHAT)
    job_id = message.id or message_id
    check_id(job_id, f'{_WHAT}: "id"')
    return IngestJob(job_id, message.files, message.table_name, message.table_id)
