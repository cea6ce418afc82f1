"""A file that waits for the ingest batcher, its message, and the port that keeps it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sleeper.jobs.files_message import check_id, check_message_size, parse_files_message
from sleeper.tables.table_ref import TableId

FILES_PER_JOB_MAX = 100
"""How many requests can be assigned at once; as many as DynamoDB changes in one transaction."""
FIRST_MESSAGE_ID = "firstMessageId"
"""The member of a redriven message that holds the id it had when it was first sent."""
_WHAT = "ingest batcher message"


@dataclass(frozen=True, slots=True)
class FileRequest:
    """One file to take in. `id` tells it from others of the table, and orders those of one time.

    `job_id` is the job that it was assigned to, if any, and `job_files` how many requests
    that job has.
    """

    table_id: TableId
    id: str
    path: str
    size_bytes: int
    received_ms: int
    job_id: str | None = None
    job_files: int = 0


class FileRequests(Protocol):
    """The requests that wait. Every call is durable when it returns."""

    def add(self, requests: Sequence[FileRequest]) -> None:
        """Keeps them. One whose id the table had before, sent or not, changes nothing."""

    def tables(self) -> tuple[TableId, ...]:
        """The tables that requests wait for, those that are gone among them, by their ids.

        One whose first request is new may be missing for a moment.
        """

    def waiting(self, table_id: TableId) -> tuple[FileRequest, ...]:
        """Those not marked as sent, oldest first. The newest may be missing for a moment."""

    def assign(self, job_id: str, requests: Sequence[FileRequest]) -> None:
        """Gives at most FILES_PER_JOB_MAX requests of one table to a job, all or none.

        ConflictError if one of them is in a job already, or was sent.
        """

    def mark_sent(self, requests: Sequence[FileRequest]) -> None:
        """Takes the requests of one job off those that wait, all or none.

        Their ids are remembered for longer than a queue keeps a message.
        """

    def discard(self, requests: Sequence[FileRequest]) -> None:
        """Takes requests of one table off those that wait, because they never can be sent.

        Their ids are remembered as those of sent ones are.
        """

    def remove_before(self, time_ms: int) -> int:
        """Forgets the ids of requests that were received before that and sent. Returns how many."""


@dataclass(frozen=True, slots=True)
class Submission:
    """What a message asks for: files of a table that is named by name or by id.

    `message_id` is the id that the message had when it was first sent, if it was redriven.
    """

    files: tuple[str, ...]
    table_name: str | None
    table_id: str | None
    message_id: str | None = None

    def to_message(self) -> str:
        """The body that `submission_from_message` reads. InvalidRequestError if it is too large."""
        raw: dict[str, object] = {"files": list(self.files)}
        if self.table_name is not None:
            raw["tableName"] = self.table_name
        if self.table_id is not None:
            raw["tableId"] = self.table_id
        body = json.dumps(raw, separators=(",", ":"))
        check_message_size(body, _WHAT)
        return body


def submission_from_message(body: str) -> Submission:
    """Parses a message (docs/formats.md, "Ingest batcher messages"). Unknown members are ignored.

    InvalidRequestError says which member is wrong.
    """
    parsed = parse_files_message(body, _WHAT, FIRST_MESSAGE_ID)
    check_id(parsed.id or "", f'{_WHAT}: "{FIRST_MESSAGE_ID}"')
    return Submission(parsed.files, parsed.table_name, parsed.table_id, parsed.id)
