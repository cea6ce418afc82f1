"""Keeps the lease of a running job."""

import logging
import threading
from types import TracebackType
from typing import Self

from sleeper.clock import Clock
from sleeper.errors import ConflictError, SleeperError, StateMovedOnError, UnavailableError
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.compaction_jobs import RenewLeases

logger = logging.getLogger(__name__)


class Lease:
    """While it is entered, a thread renews the job's lease at a third of its time.

    Entering renews at once, because the job may have waited long in its queue:
    StateMovedOnError if it holds no files any more.
    """

    def __init__(self, store: StateStore, job_id: str, seconds: float, clock: Clock) -> None:
        self._store = store
        self._job_id = job_id
        self._seconds = seconds
        self._clock = clock
        self._lost: SleeperError | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease-{job_id}", daemon=True)

    def __enter__(self) -> Self:
        self._renew()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def check(self) -> None:
        """StateMovedOnError if the job was released meanwhile: there is no use in going on."""
        if self._lost is not None:
            raise self._lost

    def _keep(self) -> None:
        while not self._ended.wait(self._seconds / 3):
            try:
                self._renew()
            except StateMovedOnError as error:
                self._lost = error
                return
            except (UnavailableError, ConflictError):
                # Two thirds of the time are left, and another try comes before they end.
                logger.warning("lease not renewed", exc_info=True, extra={"job_id": self._job_id})
            except SleeperError as error:
                self._lost = error
                return

    def _renew(self) -> None:
        with self._store.reading() as state:
            expiry_ms = state.moment(self._clock()) + int(self._seconds * 1000)
        self._store.commit_or_raise(RenewLeases((self._job_id,), expiry_ms))
