"""Commits to several tables, whose appends to their logs share a request.

One thread folds the tables one after another, starts their appends, and then ends the commits. A
thread for each table would spend more time on switches than on the work.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from sleeper.errors import UnavailableError
from sleeper.statestore.entry_commit import CommitRequest
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.codec import encode
from sleeper.statestore.transactions.transaction import Outcome, Transaction


def commit_jointly(
    commits: Sequence[tuple[StateStore, Sequence[Transaction]]],
) -> list[list[Outcome] | UnavailableError | None]:
    """Commits transactions to each table, as one entry of its log. Returns their outcomes.

    After UnavailableError the outcome is unknown. None if `StateStore.commit` has to commit or
    refuse the transactions: the log has other new entries, a transaction is not valid on the
    copy of the state, or an error occurred.
    """
    requests = [CommitRequest([encode(t) for t in transactions]) for _, transactions in commits]
    with ExitStack() as unfinished:
        started: list[Callable[[], None]] = []
        for (store, _), request in zip(commits, requests, strict=True):
            # `StateStore.commit` raises the error again, if it persists.
            with suppress(Exception):
                finish = store.start_commit(request, unfinished)
                if finish is not None:
                    started.append(finish)
        for finish in started:
            with suppress(Exception):
                finish()
    return [_result(request) for request in requests]


def _result(request: CommitRequest) -> list[Outcome] | UnavailableError | None:
    if isinstance(request.error, UnavailableError):
        return request.error
    return request.outcomes if request.done else None
