"""Messages to the committer. Format: docs/formats.md, "Commit messages"."""

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from sleeper.errors import InvalidRequestError
from sleeper.jobs.event import JobKind, JobRunRef
from sleeper.json_codec import JsonCodec, Member, camel_case
from sleeper.statestore.transactions.codec import decode_line, encode
from sleeper.statestore.transactions.transaction import Transaction
from sleeper.tables import TableId

MESSAGE_BYTES_MAX = 200 * 1024


@dataclass(frozen=True, slots=True)
class CommitEvent:
    """The run whose job status records the outcome."""

    kind: JobKind
    job_id: str
    run_id: str
    task_id: str | None


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """A message whose transactions are still text: `lines` of its own or of an object."""

    table_id: TableId
    event: Annotated[CommitEvent | None, Member(optional=True)] = None
    lines: Annotated[tuple[str, ...] | None, Member("transactions", optional=True)] = None
    object_path: Annotated[str | None, Member("object", optional=True)] = None

    @property
    def run(self) -> JobRunRef | None:
        """The run to record the outcome for, if any."""
        if (event := self.event) is None:
            return None
        return JobRunRef(self.table_id, event.job_id, event.kind, event.run_id, event.task_id)

    def to_json(self) -> str:
        """Returns the body of the message."""
        return json.dumps(_CODEC.to_json(self), separators=(",", ":"))


_CODEC = JsonCodec(CommitMessage, camel_case)


def create_commit_message(run: JobRunRef, transaction: Transaction) -> CommitMessage:
    """Returns the message that commits the run's transaction."""
    event = CommitEvent(run.kind, run.job_id, run.run_id, run.task_id)
    return CommitMessage(run.table_id, event, (encode(transaction).line,))


def move_to_object(message: CommitMessage) -> tuple[CommitMessage, bytes]:
    """Returns a message that names an object, and the content of the object."""
    path = f"{message.table_id}/commits/{uuid.uuid4().hex}.json"
    body = json.dumps(list(message.lines or ()), separators=(",", ":")).encode()
    return replace(message, lines=None, object_path=path), body


def commit_message_from_json(body: str) -> CommitMessage:
    """Parses a message. InvalidRequestError if it has no table or no transactions."""
    message = _CODEC.from_json(_parse_json(body), "commit message")
    if message.object_path is None:
        if not message.lines:
            raise InvalidRequestError('commit message: "transactions" is missing or empty')
        return message
    # The committer deletes the object, so the path of any other object is refused.
    own_path = f"{re.escape(message.table_id)}/commits/[0-9a-f]{{32}}\\.json"
    if not re.fullmatch(own_path, message.object_path):
        raise InvalidRequestError(
            f'commit message: "object" is {message.object_path[:200]!r} '
            f"(expected an object of {message.table_id}/commits/)"
        )
    return replace(message, lines=None)


def parse_commit_object(body: bytes) -> tuple[str, ...]:
    """Returns the transactions of an object. InvalidRequestError if it has none."""
    lines = _parse_json(body)
    if not isinstance(lines, list) or not lines or not all(isinstance(x, str) for x in lines):
        raise InvalidRequestError("commit object must be a list of text")
    return tuple(lines)


def decode_transactions(lines: Sequence[str]) -> list[Transaction]:
    """Returns the transactions. InvalidRequestError if a line is none."""
    return [decode_line(line).transaction for line in lines]


def _parse_json(body: str | bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"commit message is not JSON: {error}") from error
