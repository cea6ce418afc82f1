"""The commit route of runs, direct or through the committer, and the committer's backlog."""

import logging
import uuid

import obstore

from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import JobRunRef
from sleeper.jobs.queue import QueueName
from sleeper.properties.declaration import Property
from sleeper.properties.instance import COMMIT_BACKLOG_MAX
from sleeper.statestore.commit_message import (
    MESSAGE_BYTES_MAX,
    CommitRun,
    commit_now,
    create_commit_message,
    move_to_object,
)
from sleeper.statestore.transactions.transaction import Transaction
from sleeper.storage.bucket_folder import store_errors

logger = logging.getLogger(__name__)


def choose_commit(table: OpenTable, is_async: Property[bool]) -> CommitRun:
    """Returns the route through the committer if one exists and the table's property chooses it."""
    if has_committer(table.instance) and table.properties().get(is_async):
        return commit_later(table.instance)
    return commit_now(table.state)


def has_committer(instance: Instance) -> bool:
    """Returns whether the instance has a queue of commits. A local instance has none."""
    return QueueName.COMMITS in instance.jobs.queues


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
