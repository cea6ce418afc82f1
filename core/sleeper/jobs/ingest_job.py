"""An ingest job and its message (docs/formats.md, "Ingest messages")."""

import json
import uuid
from dataclasses import dataclass
from typing import Any

from sleeper.jobs.files_message import check_id, check_message_size, parse_files_message

_WHAT = "ingest message"


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
        check_message_size(body, _WHAT)
        return body


def new_job_id() -> str:
    """A fresh id for a job whose sender gave none."""
    return uuid.uuid4().hex


def ingest_job_from_message(body: str, message_id: str) -> IngestJob:
    """Parses a message; its own id stands in for a missing job id. Unknown members are ignored.

    InvalidRequestError says which member is wrong.
    """
    told = parse_files_message(body, _WHAT)
    job_id = told.id or message_id
    check_id(job_id, f'{_WHAT}: "id"')
    return IngestJob(job_id, told.files, told.table_name, told.table_id)
