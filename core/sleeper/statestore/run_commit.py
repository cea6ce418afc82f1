"""The port by which the run of a job commits: at once, or through the committer's queue."""

from collections.abc import Callable

from sleeper.errors import StateMovedOnError
from sleeper.jobs.event import JobRunRef
from sleeper.statestore.outcome import Outcome
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.transaction import Transaction

CommitRun = Callable[[JobRunRef, Transaction], Outcome | None]
"""Commits what a run did. None if it is durably queued instead: then the committer tells
the tracker what becomes of it, and the run's message may be deleted all the same.

UnavailableError if it is not known whether it was committed or queued: both may be repeated.
"""


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
