"""What messages that name files of a table have in common (FORMATS: Messages).

Whoever sends them may be anybody, so each member is checked before it goes anywhere.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.jobs.message_text import check_text
from sleeper.jobs.queue import MESSAGE_BYTES_MAX


@dataclass(frozen=True, slots=True)
class FilesMessage:
    """Files for a table that is named by its name or its id; `raw` has every member."""

    files: tuple[str, ...]
    table_name: str | None
    table_id: str | None
    raw: Mapping[str, Any]


def parse_files_message(body: str, what: str, *more_texts: str) -> FilesMessage:
    """Parses a message that is called `what`; members of `more_texts` are texts, if there.

    Unknown members are ignored. InvalidRequestError says which member is wrong.
    """
    check_message_size(body, what)
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{what} is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise InvalidRequestError(f"{what} must be a JSON object")
    files = raw.get("files")
    if not isinstance(files, list) or not files or not all(isinstance(f, str) for f in files):
        raise InvalidRequestError(f'{what}: "files" must be a list of one or more paths')
    for member in (*more_texts, "tableName", "tableId"):
        if raw.get(member) is not None and not isinstance(raw[member], str):
            raise InvalidRequestError(f'{what}: "{member}" must be text')
        check_text(raw.get(member) or "", f'{what}: "{member}"')
    for file in files:
        check_text(file, f"{what}: a path")
    if raw.get("tableName") is None and raw.get("tableId") is None:
        raise InvalidRequestError(f'{what}: "tableName" or "tableId" is missing')
    return FilesMessage(tuple(files), raw.get("tableName"), raw.get("tableId"), raw)


def check_message_size(body: str, what: str) -> None:
    """InvalidRequestError if no queue takes it."""
    size = len(body.encode(errors="replace"))
    if size > MESSAGE_BYTES_MAX:
        raise InvalidRequestError(
            f"{what} of {size:,} bytes is over the limit of {MESSAGE_BYTES_MAX:,}: "
            "send several, or a folder instead of its files"
        )
