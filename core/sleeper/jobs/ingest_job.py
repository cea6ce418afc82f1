"""An ingest job and its message (docs/formats.md, "Ingest messages")."""

import json
import uuid
from dataclasses import dataclass
from typing import Any

from sleeper.jobs.files_message import check_id, check_message_size, parse_files_message

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
