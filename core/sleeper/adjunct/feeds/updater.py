"""Keeps a store up to date in the background."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from sleeper.adjunct.feeds.feed import Feed
from sleeper.adjunct.versions.folder import StoreFolder
from sleeper.adjunct.versions.requests import (
    Action,
    Request,
    finish_request,
    read_requests,
    refuse_request,
)
from sleeper.adjunct.versions.status import StoreStatus, describe, write_report
from sleeper.adjunct.versions.store import Store
from sleeper.errors import InvalidRequestError, SleeperError, UnavailableError

logger = logging.getLogger(__name__)

REPORT_SECONDS = 10.0
"""The process that fills a store writes its status at least so often, also during a load."""

_CHANGE_SECONDS = 1.0
_POLL_SECONDS = 0.2
_FAILURE_SECONDS_MAX = 30.0


class StoreUpdater:
    """Calls a feed in a thread, and on request. `problem` and `error` are why the last call failed.

    Each call also handles the requests of other processes, and writes the status for them.
    """

    def __init__(self, store: Store, feed: Feed) -> None:
        self._store = store
        self.feed = feed
        self.problem: str | None = None
        self.error: Exception | None = None
        self._reporter = _StatusReporter(store, feed)
        store.on_progress = self._report_progress
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._taken: set[str] = set()

    def start(self, period_seconds: float | None, bootstrap_seconds: float) -> None:
        """Starts the feed and its thread, unless the period is None.

        Waits for a complete copy if the store is bootstrapped. UnavailableError if there is none
        after `bootstrap_seconds`; the time of a load does not count. A complete copy that was found
        serves while the input does not respond.
        """
        if period_seconds is not None and not period_seconds > 0:
            raise InvalidRequestError(
                f"store {self._store.definition.name!r}: refresh period {period_seconds} s "
                "(expected more than 0, or None)"
            )
        self.feed.start()
        if self._store.definition.bootstrap:
            self._wait_until_complete(bootstrap_seconds)
        if period_seconds is not None:
            name = f"adjunct store {self._store.definition.name}"
            # Without a bootstrap, the first load begins at once.
            is_due = not self._store.definition.bootstrap
            self._thread = threading.Thread(
                target=self.run, args=(period_seconds, is_due), name=name, daemon=True
            )
            self._thread.start()

    def update(self) -> int:
        """Writes the data that the input has now. Returns the number of keys that were written."""
        with self._lock:
            try:
                requests = self._take_requests()
                self._reporter.report(self.problem)
                rows = self.feed.update()
            except Exception as error:
                self.problem, self.error = str(error), error
                self._reporter.report(self.problem)
                raise
            self.problem = self.error = None
            self._reporter.report(None, is_changed=rows > 0 or bool(requests))
            for request in requests:
                assert self._store.folder is not None
                finish_request(self._store.folder, request)
                self._taken.discard(request.id)
            return rows

    def end(self) -> None:
        """Makes `run` return, after a running update; a load is abandoned. Idempotent."""
        self._ended.set()

    def stop(self) -> None:
        """Ends the thread as `end`, waits for it and closes the input. Idempotent."""
        self.end()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self.feed.close()
        self._reporter.close(self.problem)

    def _take_requests(self) -> Sequence[Request]:
        """Begins what other processes ask for, once. Returns what the next update will have done.

        A seal is done here: if it were asked for again, it would end a part of the next dataset.
        """
        folder = self._store.folder
        if folder is None:
            return ()
        taken = []
        for request in read_requests(folder):
            if request.id in self._taken:
                taken.append(request)
                continue
            logger.info("store %s: asked to %s", self._store.definition.name, request.action.value)
            try:
                (self.feed.rebuild if request.action is Action.REBUILD else self.feed.seal)()
            except InvalidRequestError as error:
                refuse_request(folder, request, str(error))
                continue
            if request.action is Action.SEAL:
                finish_request(folder, request)
                continue
            self._taken.add(request.id)
            taken.append(request)
        return taken

    def _report_progress(self) -> None:
        if self._ended.is_set():
            raise UnavailableError(
                f"store {self._store.definition.name!r} was closed while a version was built"
            )
        self._reporter.report(self.problem, is_changed=True)

    def _wait_until_complete(self, seconds: float) -> None:
        definition, waited = self._store.definition, 0.0
        while True:
            began = time.monotonic()
            failure = self._try_update()
            if failure is not None:
                waited += time.monotonic() - began
            state = self._store.state
            if state is not None and state.is_bootstrapped:
                if failure is not None:
                    logger.warning("store %s is not up to date: %s", definition.name, failure)
                return
            if waited >= seconds:
                if failure is not None:
                    raise failure
                raise UnavailableError(
                    f"store {definition.name!r}: {definition.input} has no complete dataset after "
                    f"{seconds:g} s (expected the marker of its end, such as _SUCCESS in a folder)"
                )
            time.sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS

    def _try_update(self) -> UnavailableError | None:
        try:
            self.update()
        except UnavailableError as error:
            return error
        return None

    def run(
        self,
        period_seconds: float,
        is_due: bool = True,
        on_update: Callable[[], object] = lambda: None,
    ) -> None:
        """Updates the store at once if `is_due`, and then at each period, until `stop`.

        Waits longer after failures. `on_update` is called after each update that did not fail.
        """
        name = self._store.definition.name
        wait_seconds = 0.0 if is_due else period_seconds
        failure_seconds = period_seconds
        while not self._ended.wait(wait_seconds):
            wait_seconds = period_seconds
            try:
                self.update()
                failure_seconds = period_seconds
                on_update()
            except Exception as error:
                if self._ended.is_set():
                    return
                wait_seconds = failure_seconds = min(2 * failure_seconds, _FAILURE_SECONDS_MAX)
                level = logging.WARNING if isinstance(error, SleeperError) else logging.ERROR
                logger.log(
                    level,
                    "store %s could not be updated, next attempt in %.1f s: %s",
                    *(name, wait_seconds, error),
                    exc_info=None if isinstance(error, SleeperError) else error,
                )


class _StatusReporter:
    """Writes the status of a store from time to time, for other processes. One thread calls it."""

    def __init__(self, store: Store, feed: Feed) -> None:
        self._store = store
        self._feed = feed
        self._written_at = -REPORT_SECONDS
        self._problem: str | None = None
        self._is_changed = False
        self._updated_ms = 0

    def report(self, problem: str | None, is_changed: bool = False) -> None:
        """Writes the status if it is due. A change of it is due earlier."""
        now = time.monotonic()
        self._is_changed = self._is_changed or is_changed or problem != self._problem
        period = _CHANGE_SECONDS if self._is_changed else REPORT_SECONDS
        if self._store.folder is None or now < self._written_at + period:
            return
        self._written_at, self._problem, self._is_changed = now, problem, False
        # During a load, the input has more to do than to say how far it is.
        is_loading = self._store.rows_building is not None
        find_lag = None if is_loading else self._feed.lag
        self._write(self._store.folder, describe(self._store, problem, find_lag))

    def close(self, problem: str | None) -> None:
        """Writes the status at the end, without how far the store is behind."""
        if self._store.folder is not None:
            self._write(self._store.folder, describe(self._store, problem))

    def _write(self, folder: StoreFolder, status: StoreStatus) -> None:
        self._updated_ms = max(self._updated_ms, status.updated_ms)
        write_report(folder, replace(status, updated_ms=self._updated_ms))
