"""Commits of a run, by this process or by a message to the committer.

Each job id commits once. Ingests, bulk imports and other writers share the ids, and an id that was
used for other input is rejected. Messages: docs/formats.md, "Commit messages".
"""

import json
import logging
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

from sleeper.errors import ConflictError, InvalidRequestError, StateMovedOnError, UnavailableError
from sleeper.jobs.event import JobKind, JobRunRef
from sleeper.json_codec import JsonCodec, Member, camel_case
from sleeper.retries import Backoff, retry
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles
from sleeper.statestore.transactions.codec import decode_line, encode, hash_request
from sleeper.statestore.transactions.transaction import Outcome, Status, Transaction
from sleeper.tables import TableId

logger = logging.getLogger(__name__)
R = TypeVar("R")
CommitRun = Callable[[JobRunRef, Transaction], Outcome | None]
"""Commits a run's transaction. Returns None if the commit is durably queued: the committer then
records the outcome with the job tracker, and the run's message may be deleted.

UnavailableError if it is unknown whether it was committed or queued. Both are idempotent.
"""
_BACKOFF = Backoff(seconds_first=0.25, seconds_max=10.0, jitter=0.5, seconds_total=60.0)


def commit_until_known(commit: Callable[[], R]) -> R:
    """Retries a commit after an UnavailableError or ConflictError, for a minute.

    `commit` sends the same transaction each time, and the log applies it once. Raises the last
    error.
    """
    return retry(
        commit,
        on=(ConflictError, UnavailableError),
        backoff=_BACKOFF,
        on_retry=lambda error, wait_seconds: logger.warning(
            "commit failed, retrying in %.1f s: %s", wait_seconds, error
        ),
    )


def commit_now(store: StateStore) -> CommitRun:
    """Returns a function that commits in this process."""

    def commit(_: JobRunRef, transaction: Transaction) -> Outcome:
        (outcome,) = store.commit(transaction)
        return outcome

    return commit


def check_outcome(transaction: Transaction, outcome: Outcome | None) -> Outcome | None:
    """Returns the outcome. StateMovedOnError with the reason if it is a refusal."""
    if outcome is not None and outcome.refused:
        raise StateMovedOnError(f"{transaction.kind} {transaction.id}: {outcome.reason}")
    return outcome


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


def find_earlier_commit(state: StateStore, job_id: str, request: str) -> Outcome | None:
    """Returns the outcome of an earlier commit of the job; None if there is none.

    InvalidRequestError if the id was used for another request.
    """
    with state.reading() as now:
        applied = now.jobs.applied(job_id, AddFiles.kind)
    if applied is None:
        return None
    if applied.fingerprint != hash_request(request):
        raise InvalidRequestError(
            f"ingest job id {job_id} was used by transaction {applied.number} for other files"
        )
    logger.info("job is committed already", extra={"job_id": job_id})
    return Outcome(Status.ALREADY_DONE, applied.number)


def commit_files(state: StateStore, files: AddFiles) -> Outcome:
    """Commits the files. The outcome shows whether another run of the job committed first.

    Retries unavailable stores. After UnavailableError the outcome is unknown: retry the job under
    its id. StateMovedOnError if the commit is refused, InvalidRequestError if the id was used
    meanwhile for another request.
    """
    (outcome,) = commit_until_known(lambda: state.commit(files))
    return check_file_outcome(state, files, outcome)


def check_file_outcome(state: StateStore, files: AddFiles, outcome: Outcome) -> Outcome:
    """Returns the outcome. Raises the errors of `commit_files` if it is a refusal."""
    if outcome.refused:
        if files.request is not None:
            find_earlier_commit(state, files.id, files.request)
        raise StateMovedOnError(f"ingest job {files.id} came too late: {outcome.reason}")
    return outcome
