"""Renewal of a running job's lease."""

import logging
import threading
from typing import Self

from sleeper.clock import Clock
from sleeper.errors import ConflictError, SleeperError, UnavailableError
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.compaction_jobs import RenewLeases

logger = logging.getLogger(__name__)


class Lease:
    """A context in which a thread renews the job's lease every third of its duration.

    Entering renews at once, because the job may have waited long in its queue.
    StateMovedOnError if the job holds no files any more.
    """

    def __init__(self, store: StateStore, job_id: str, seconds: float, clock: Clock) -> None:
        self._store = store
        self._job_id = job_id
        self._seconds = seconds
        self._clock = clock
        self._error: SleeperError | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._renew_periodically, name=f"lease-{job_id}", daemon=True
        )

    def __enter__(self) -> Self:
        self._renew()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def check(self) -> None:
        """Raises StateMovedOnError if the job was released."""
        if self._error is not None:
            raise self._error

    def _renew_periodically(self) -> None:
        while not self._ended.wait(self._seconds / 3):
            try:
                self._renew()
            except (UnavailableError, ConflictError):
                # Two thirds of the duration are left, enough for another try.
                logger.warning("lease not renewed", exc_info=True, extra={"job_id": self._job_id})
            except SleeperError as error:
                self._error = error
                return

    def _renew(self) -> None:
        with self._store.reading() as state:
            expiry_ms = state.moment(self._clock()) + int(self._seconds * 1000)
        self._store.commit_or_raise(RenewLeases((self._job_id,), expiry_ms))
