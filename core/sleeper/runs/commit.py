"""Commits of runs, in this process or through the committer, and the committer's backlog.

Each job id commits once. Ingests, bulk imports and other writers share the ids, and an id that was
used for other input is rejected.
"""

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import obstore

from sleeper.clock import Clock
from sleeper.errors import ConflictError, InvalidRequestError, StateMovedOnError, UnavailableError
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import JobRunRef
from sleeper.jobs.queue import QueueName
from sleeper.properties.declaration import Property
from sleeper.properties.instance import COMMIT_BACKLOG_MAX
from sleeper.retries import Backoff, retry
from sleeper.statestore.commit_message import (
    MESSAGE_BYTES_MAX,
    create_commit_message,
    move_to_object,
)
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.codec import hash_request
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.snapshot_loads import BeginLoad, PublishSnapshot
from sleeper.statestore.transactions.transaction import (
    Outcome,
    Status,
    Transaction,
    new_transaction_id,
)
from sleeper.storage.bucket_folder import store_errors

logger = logging.getLogger(__name__)
R = TypeVar("R")
CommitRun = Callable[[JobRunRef, Transaction], Outcome | None]
"""Commits a run's transaction. Returns None if the commit is durably queued: the committer then
records the outcome with the job tracker, and the run's message may be deleted.

UnavailableError if it is unknown whether it was committed or queued. Both are idempotent.
"""
_BACKOFF = Backoff(seconds_first=0.25, seconds_max=10.0, jitter=0.5, seconds_total=60.0)


def choose_commit(table: OpenTable, is_async: Property[bool]) -> CommitRun:
    """Returns the route through the committer if one exists and the table's property chooses it."""
    if has_committer(table.instance) and table.properties().get(is_async):
        return commit_later(table.instance)
    return commit_now(table.state)


def has_committer(instance: Instance) -> bool:
    """Returns whether the instance has a queue of commits. A local instance has none."""
    return QueueName.COMMITS in instance.jobs.queues


def commit_now(store: StateStore) -> CommitRun:
    """Returns a function that commits in this process."""

    def commit(_: JobRunRef, transaction: Transaction) -> Outcome:
        (outcome,) = store.commit(transaction)
        return outcome

    return commit


def commit_later(instance: Instance) -> CommitRun:
    """Returns the route that sends commits to the committer, large ones as objects."""

    def send(run: JobRunRef, transaction: Transaction) -> None:
        message = create_commit_message(run, transaction)
        body = message.to_json()
        if len(body.encode()) > MESSAGE_BYTES_MAX:
            message, content = move_to_object(message)
            assert message.object_path is not None
            with store_errors(message.object_path):
                obstore.put(instance.storage.root.store, message.object_path, content)
            body = message.to_json()
        # Each attempt is a new message, because the committer recognizes repeated transactions.
        fresh = uuid.uuid4().hex
        instance.jobs.queue(QueueName.COMMITS).send(
            body, group=run.table_id, deduplication_id=fresh
        )
        logger.info("commit queued", extra={"table": run.table_id, "job_id": run.job_id})

    return send


def is_committer_behind(instance: Instance) -> bool:
    """Returns whether the backlog of commits is too long for more jobs."""
    if not has_committer(instance):
        return False
    most = instance.properties().get(COMMIT_BACKLOG_MAX)
    waiting = instance.jobs.queue(QueueName.COMMITS).counts().unfinished
    if waiting > most:
        logger.warning("%d commits are waiting for the committer, more than %d", waiting, most)
    return waiting > most


def commit_until_settled(commit: Callable[[], R]) -> R:
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


def find_earlier_commit(state: StateStore, job_id: str, request: str) -> Outcome | None:
    """Returns the outcome of an earlier commit of the job; None if there is none.

    InvalidRequestError if the id was used for another request.
    """
    with state.reading() as now:
        applied = now.jobs.added_files(job_id)
    if applied is None:
        return None
    if applied.fingerprint != hash_request(request):
        raise InvalidRequestError(
            f"ingest job id {job_id} was used by transaction {applied.number} for other files"
        )
    logger.info("job was already committed", extra={"job_id": job_id})
    return Outcome(Status.ALREADY_DONE, applied.number)


@dataclass(frozen=True, slots=True)
class RunStart:
    """When a run began: its time, and its place among the loads of a snapshot table."""

    ms: int
    begun: int | None = None

    def commit_of(self, job_id: str, files: tuple[NewFile, ...], request: str) -> AddFiles:
        """Returns the commit of the run's files, which in a snapshot table replace all others."""
        if self.begun is None:
            return AddFiles(job_id, self.ms, files, request)
        return PublishSnapshot(job_id, self.ms, files, request, begun=self.begun)


def begin_run(state: StateStore, clock: Clock, job_id: str | None = None) -> RunStart:
    """Returns the start of a run that will commit files. In a snapshot table a load begins.

    Another run of the job has the place of the first among the loads.
    UnavailableError if the clock is implausibly ahead of the log.
    """
    with state.reading() as now:
        start_ms, is_load = now.run_start(clock()), now.is_snapshot_table
    if not is_load:
        return RunStart(start_ms)
    begin = BeginLoad(job_id, id=job_id or new_transaction_id())
    return RunStart(start_ms, commit_until_settled(lambda: state.commit_or_raise(begin)))


def commit_files(state: StateStore, files: AddFiles) -> Outcome:
    """Commits the files. The outcome shows whether another run of the job committed first.

    Retries unavailable stores. After UnavailableError the outcome is unknown: retry the job under
    its id. StateMovedOnError if the commit is refused, InvalidRequestError if the id was used
    meanwhile for another request, or if a load that began later has replaced the table.
    """
    (outcome,) = commit_until_settled(lambda: state.commit(files))
    check_file_outcome(state, files, outcome)
    return outcome


def is_overtaken(state: StateStore, transaction: Transaction) -> bool:
    """Returns whether the transaction publishes a load that began before the published one.

    It can never succeed, so the job is rejected and not retried.
    """
    if not isinstance(transaction, PublishSnapshot):
        return False
    with state.reading() as now:
        newest = now.snapshots.newest_begun()
    return newest is not None and newest > transaction.begun


def is_hopeless(state: StateStore, transaction: Transaction) -> bool:
    """Returns whether a refused transaction can never succeed.

    Its job is rejected: an overtaken load, and a delete, whose message would be refused again.
    """
    return isinstance(transaction, DeleteRows) or is_overtaken(state, transaction)


def check_file_outcome(state: StateStore, files: AddFiles, outcome: Outcome) -> None:
    """Raises the errors of `commit_files` if the outcome is a refusal."""
    if outcome.refused:
        if files.request is not None:
            find_earlier_commit(state, files.id, files.request)
        if is_overtaken(state, files):
            raise InvalidRequestError(outcome.reason)
        raise StateMovedOnError(f"ingest job {files.id} came too late: {outcome.reason}")
