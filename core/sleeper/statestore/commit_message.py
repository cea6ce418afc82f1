"""Messages to the committer: what a run wants committed, and whom to tell of it.

`{"tableId": …, "event": {"kind", "jobId", "runId", "taskId"}, "transactions": [line…]}`, where a
line is a transaction as it stands in the log. Instead of transactions there may be `"object"`, the
path of an object below `<table id>/commits/` that holds them as a JSON list.
"""

import json
import logging
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sleeper.errors import ConflictError, InvalidRequestError, StateMovedOnError, UnavailableError
from sleeper.jobs.event import JobKind, JobRunRef
from sleeper.retries import Backoff, retry
from sleeper.statestore.outcome import Outcome
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.codec import decode_line, encode
from sleeper.statestore.transactions.transaction import Transaction
from sleeper.tables.table_ref import TableId

logger = logging.getLogger(__name__)
R = TypeVar("R")
CommitRun = Callable[[JobRunRef, Transaction], Outcome | None]
"""Commits what a run did. None if it is durably queued instead: then the committer tells
the tracker what becomes of it, and the run's message may be deleted all the same.

UnavailableError if it is not known whether it was committed or queued: both may be repeated.
"""
_BACKOFF = Backoff(seconds_first=0.25, seconds_max=10.0, jitter=0.5, seconds_total=60.0)


def commit_until_known(commit: Callable[[], R]) -> R:
    """Repeats a commit that was not answered, or that other writers were before, for a minute.

    `commit` sends the same transaction each time, which the log applies once. Raises the last
    UnavailableError or ConflictError.
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
    """Commits by this process."""

    def commit(_: JobRunRef, transaction: Transaction) -> Outcome:
        (outcome,) = store.commit(transaction)
        return outcome

    return commit


def not_refused(transaction: Transaction, outcome: Outcome | None) -> Outcome | None:
    """The outcome; StateMovedOnError with the reason if it is a refusal."""
    if outcome is not None and outcome.refused:
        raise StateMovedOnError(f"{transaction.kind} {transaction.id}: {outcome.reason}")
    return outcome


MESSAGE_BYTES_MAX = 200 * 1024


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """A message as it is parsed, its transactions still as text.

    `lines` are None where they are in an object. `run` is whom to tell.
    """

    table_id: TableId
    run: JobRunRef | None
    lines: tuple[str, ...] | None
    object_path: str | None = None

    def to_json(self) -> str:
        """The body of the message."""
        raw: dict[str, Any] = {"tableId": self.table_id}
        if self.run is not None:
            raw["event"] = {
                "kind": self.run.kind.value,
                "jobId": self.run.job_id,
                "runId": self.run.run_id,
                "taskId": self.run.task_id,
            }
        if self.lines is not None:
            raw["transactions"] = list(self.lines)
        else:
            raw["object"] = self.object_path
        return json.dumps(raw, separators=(",", ":"))


def message_of(run: JobRunRef, transaction: Transaction) -> CommitMessage:
    """The message that has the run's transaction committed."""
    return CommitMessage(run.table_id, run, (encode(transaction).line,))


def in_object(message: CommitMessage) -> tuple[CommitMessage, bytes]:
    """The message that stands for one too big to send, and what its object holds."""
    path = f"{message.table_id}/commits/{uuid.uuid4().hex}.json"
    body = json.dumps(list(message.lines or ()), separators=(",", ":")).encode()
    return CommitMessage(message.table_id, message.run, None, path), body


def commit_message_from_json(body: str) -> CommitMessage:
    """Parses a message. InvalidRequestError if it names no table, or nothing to commit."""
    raw = _parsed(body)
    if not isinstance(raw, dict) or not isinstance(raw.get("tableId"), str):
        raise InvalidRequestError('not a commit: "tableId" is missing')
    table_id = TableId(raw["tableId"])
    path, lines = raw.get("object"), raw.get("transactions")
    if path is not None:
        _check_path(table_id, path)
        lines = None
    elif not _is_lines(lines):
        raise InvalidRequestError('not a commit: "transactions" must be a list of text')
    return CommitMessage(
        table_id, _run(table_id, raw.get("event")), None if lines is None else tuple(lines), path
    )


def lines_of_object(body: bytes) -> tuple[str, ...]:
    """The transactions that an object holds. InvalidRequestError if it holds none."""
    lines = _parsed(body)
    if not _is_lines(lines):
        raise InvalidRequestError("the object of a commit must hold a list of text")
    return tuple(lines)


def transactions_of(lines: Sequence[str]) -> list[Transaction]:
    """What the lines say. InvalidRequestError if one is no transaction."""
    return [decode_line(line).transaction for line in lines]


def _parsed(body: str | bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise InvalidRequestError(f"a commit is not JSON: {error}") from error


def _check_path(table_id: TableId, path: Any) -> None:
    """No other object: what a message names is deleted when it is done."""
    own = f"{re.escape(table_id)}/commits/[0-9a-f]{{32}}\\.json"
    if not isinstance(path, str) or not re.fullmatch(own, path):
        raise InvalidRequestError(
            f'not a commit: "object" must be one of {table_id}/commits/, not {str(path)[:200]!r}'
        )


def _is_lines(lines: Any) -> bool:
    return isinstance(lines, list) and all(isinstance(line, str) for line in lines) and bool(lines)


def _run(table_id: TableId, raw: Any) -> JobRunRef | None:
    if raw is None:
        return None
    try:
        task_id = raw["taskId"]
        return JobRunRef(
            table_id,
            str(raw["jobId"]),
            JobKind(raw["kind"]),
            str(raw["runId"]),
            None if task_id is None else str(task_id),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequestError(f'not a commit: "event" cannot be read: {error!r}') from error
