"""The port by which the run of a job commits: at once, or through the committer's queue."""

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from sleeper.errors import ConflictError, StateMovedOnError, UnavailableError
from sleeper.jobs.event import JobRunRef
from sleeper.statestore.outcome import Outcome
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.transaction import Transaction

logger = logging.getLogger(__name__)

R = TypeVar("R")

CommitRun = Callable[[JobRunRef, Transaction], Outcome | None]
"""Commits what a run did. None if it is durably queued instead: then the committer tells
the tracker what becomes of it, and the run's message may be deleted all the same.

UnavailableError if it is not known whether it was committed or queued: both may be repeated.
"""


_RETRY_SECONDS = 60.0
_PAUSE_SECONDS_MAX = 10.0
_sleep = time.sleep


def commit_until_known(commit: Callable[[], R]) -> R:
    """Repeats a commit that was not answered, or that other writers were before, for a minute.

    `commit` sends the same transaction each time, which the log applies once. Raises the last
    UnavailableError or ConflictError.
    """
    waited_seconds, pause_seconds = 0.0, 0.25
    while True:
        try:
            return commit()
        except (ConflictError, UnavailableError) as error:
            if waited_seconds >= _RETRY_SECONDS:
                raise
            wait_seconds = pause_seconds * random.uniform(0.5, 1)
            logger.warning("commit failed, retrying in %.1f s: %s", wait_seconds, error)
            _sleep(wait_seconds)
            waited_seconds += wait_seconds
            pause_seconds = min(2 * pause_seconds, _PAUSE_SECONDS_MAX)


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
