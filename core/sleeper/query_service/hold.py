"""The hold of a query on the version that its subqueries read.

Its id follows from the query's, so that any process can renew or release it. It expires on
a grid of times, so that of all the subqueries that renew it only the first of each period
writes to the log.
"""

import hashlib
import logging

from sleeper.errors import SleeperError
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.holds import CreateHold, ReleaseHold, RenewHold

logger = logging.getLogger(__name__)


def take_hold(store: StateStore, query_id: str, version: int, now_ms: int, seconds: int) -> None:
    """Holds the version; extends the hold if an earlier delivery of the query created it.

    StateMovedOnError if files of the version may be gone.
    """
    owner = f"query {query_id}"
    expiry = _expiry_ms(store, now_ms, seconds)
    store.commit_or_raise(CreateHold(_id(query_id), owner, version, expiry))


def renew_hold(store: StateStore, query_id: str, begun_ms: int, now_ms: int, seconds: int) -> None:
    """Makes the hold last, once the query takes a good part of its time. Never fails."""
    if now_ms - begun_ms < seconds * 1000 // 3:
        return
    try:
        expiry = _expiry_ms(store, now_ms, seconds)
        store.commit_or_raise(RenewHold(_id(query_id), expiry))
    except SleeperError as error:
        # If files are gone the subquery says so itself.
        logger.warning("hold of query %s not renewed: %s", query_id, error)


def release_hold(store: StateStore, query_id: str) -> None:
    """Lets the version go. Never fails: a hold that stays expires."""
    try:
        store.commit(ReleaseHold(_id(query_id)))
    except SleeperError as error:
        logger.warning("hold of query %s not released: %s", query_id, error)


def _id(query_id: str) -> str:
    return f"query-{hashlib.sha256(query_id.encode()).hexdigest()[:32]}"


def _expiry_ms(store: StateStore, now_ms: int, seconds: int) -> int:
    """From one to one and a third of the time away, the same for a third of it."""
    with store.reading() as state:
        moment = state.moment(now_ms)
    period = max(1, seconds * 1000 // 3)
    return (moment // period + 4) * period
