"""An ingest job and its message (FORMATS: Messages, ingest)."""

import json
import uuid
from dataclasses import dataclass
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.jobs.message_text import check_text
from sleeper.jobs.queue import MESSAGE_BYTES_MAX

_ID_BYTES_MAX = 500


@dataclass(frozen=True, slots=True)
class IngestJob:
    """Files to take in under an id. The table is named by `table_name` or by `table_id`."""

    id: str
    files: tuple[str, ...]
    table_name: str | None = None
    table_id: str | None = None

    @property
    def request(self) -> str:
        """What the job asks for: the same id may come again only with this."""
        return json.dumps(sorted(self.files), separators=(",", ":"))

    def to_message(self) -> str:
        """The body that `ingest_job_from_message` reads. InvalidRequestError if it is too large."""
        raw: dict[str, Any] = {"id": self.id, "files": list(self.files)}
        if self.table_name is not None:
            raw["tableName"] = self.table_name
        if self.table_id is not None:
            raw["tableId"] = self.table_id
        body = json.dumps(raw, separators=(",", ":"))
        _check_size(body)
        return body


def new_job_id() -> str:
    """A fresh id for a job whose sender gave none."""
    return uuid.uuid4().hex


def ingest_job_from_message(body: str, message_id: str) -> IngestJob:
    """Parses a message; its own id stands in for a missing job id. Unknown members are ignored.

    InvalidRequestError says which member is wrong.
    """
    _check_size(body)
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"ingest message is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise InvalidRequestError("ingest message must be a JSON object")
    files = raw.get("files")
    if not isinstance(files, list) or not files or not all(isinstance(f, str) for f in files):
        raise InvalidRequestError('ingest message: "files" must be a list of one or more paths')
    for member in ("id", "tableName", "tableId"):
        if raw.get(member) is not None and not isinstance(raw[member], str):
            raise InvalidRequestError(f'ingest message: "{member}" must be text')
        check_text(raw.get(member) or "", f'ingest message: "{member}"')
    for file in files:
        check_text(file, "ingest message: a path")
    if len((raw.get("id") or "").encode()) > _ID_BYTES_MAX:
        raise InvalidRequestError(f'ingest message: "id" is longer than {_ID_BYTES_MAX} bytes')
    if raw.get("tableName") is None and raw.get("tableId") is None:
        raise InvalidRequestError('ingest message: "tableName" or "tableId" is missing')
    return IngestJob(
        raw.get("id") or message_id, tuple(files), raw.get("tableName"), raw.get("tableId")
    )


def body_with_job_id(body: str, message_id: str) -> str:
    """The body with the message's id as the job's, where its sender gave none.

    For a message that is sent again, under another id of its own. What is no job stays.
    """
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError):
        return body
    if not isinstance(raw, dict) or raw.get("id"):
        return body
    return json.dumps({**raw, "id": message_id}, separators=(",", ":"))


def _check_size(body: str) -> None:
    size = len(body.encode(errors="replace"))
    if size > MESSAGE_BYTES_MAX:
        raise InvalidRequestError(
            f"ingest message of {size:,} bytes is over the limit of {MESSAGE_BYTES_MAX:,}: "
            "send several jobs, or a folder instead of its files"
        )
