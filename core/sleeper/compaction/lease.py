"""Renewal of a running job's lease."""

from typing import Self

from sleeper.clock import Clock
from sleeper.errors import DataError, InvalidRequestError, NotFoundError, StateMovedOnError
from sleeper.renewal import Renewal
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.compaction_jobs import RenewLeases

_LOST = (DataError, InvalidRequestError, NotFoundError, StateMovedOnError)


class Lease:
    """Renews the job's lease in the background, at a third of its time, within a `with` block.

    Entering renews at once, because the job may have waited long in its queue:
    StateMovedOnError if it holds no files any more.
    """

    def __init__(self, store: StateStore, job_id: str, seconds: float, clock: Clock) -> None:
        self._store = store
        self._job_id = job_id
        self._seconds = seconds
        self._clock = clock
        # A failed renewal is repeated before the lease expires.
        self._renewal = Renewal(
            "lease renewal", self._renew, seconds / 3, ends_on=_LOST, extra={"job_id": job_id}
        )

    def __enter__(self) -> Self:
        self._renew()
        self._renewal.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._renewal.__exit__(*error)

    def check(self) -> None:
        """Raises StateMovedOnError if the job has been released."""
        if self._renewal.error is not None:
            raise self._renewal.error

    def _renew(self) -> None:
        with self._store.reading() as state:
            expiry_ms = state.moment(self._clock()) + int(self._seconds * 1000)
        self._store.commit_or_raise(RenewLeases((self._job_id,), expiry_ms))
