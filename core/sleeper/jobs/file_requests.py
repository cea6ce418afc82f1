"""The ingest batcher's requests: files that wait for a job, their message and their store."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from sleeper.jobs.ingest_job import MessageCodec, MessageId
from sleeper.json_codec import Member
from sleeper.lenient_json import LenientText, OptionalText
from sleeper.tables import TableId

FILES_PER_JOB_MAX = 100
"""The number of requests that can be assigned at once, the limit of DynamoDB's transactions."""
FIRST_MESSAGE_ID = "firstMessageId"
"""The member of a redriven message with its original message id."""


@dataclass(frozen=True, slots=True)
class FileRequest:
    """A file to ingest. `id` is unique in the table, and orders requests of the same time.

    `job_id` is the job of an assigned request, and `job_files` the number of the job's requests.
    """

    table_id: TableId
    id: str
    path: str
    size_bytes: int
    received_ms: int
    job_id: str | None = None
    job_files: int = 0


class FileRequests(Protocol):
    """The store of waiting requests. Every call is durable when it returns."""

    def add(self, requests: Sequence[FileRequest]) -> None:
        """Stores requests. Ignores a request with an earlier id of the table, sent or not."""

    def tables(self) -> tuple[TableId, ...]:
        """Returns the ids of tables with waiting requests, including deleted tables.

        A table whose first request is new may be missing for a moment.
        """

    def waiting(self, table_id: TableId) -> tuple[FileRequest, ...]:
        """Returns requests that are not sent, oldest first. The newest may be missing briefly."""

    def assign(self, job_id: str, requests: Sequence[FileRequest]) -> None:
        """Assigns at most FILES_PER_JOB_MAX requests of one table to a job, all or none.

        ConflictError if a request is already assigned or sent.
        """

    def mark_sent(self, requests: Sequence[FileRequest]) -> None:
        """Marks the requests of one job as sent, all or none.

        Their ids are kept for longer than a queue keeps a message.
        """

    def discard(self, requests: Sequence[FileRequest]) -> None:
        """Discards requests of one table that can never be sent. Their ids are kept alike."""

    def remove_before(self, time_ms: int) -> int:
        """Deletes the ids of requests received before and sent. Returns the number."""


@dataclass(frozen=True, slots=True)
class Submission:
    """Files of a table with a name or an id (docs/formats.md, "Ingest batcher messages").

    `first_message_id` identifies the submission, of which another message adds nothing. The sender
    chose it, or it is the id of the message, or that of the message before a redrive.
    """

    files: tuple[LenientText, ...]
    table_name: OptionalText = None
    table_id: OptionalText = None
    first_message_id: Annotated[MessageId | None, Member(optional=True)] = None


SUBMISSIONS = MessageCodec(Submission, "ingest batcher message", FIRST_MESSAGE_ID)
