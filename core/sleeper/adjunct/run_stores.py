"""Fills several stores until the process is interrupted, or until all are up to date."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sleeper.adjunct.definition import StoreDefinition
from sleeper.adjunct.feeds.opening import FeedContext, open_feed
from sleeper.adjunct.feeds.updater import StoreUpdater
from sleeper.adjunct.versions.status import StoreStatus, describe
from sleeper.adjunct.versions.store import Store
from sleeper.clock import system_clock
from sleeper.errors import SleeperError, UnavailableError

logger = logging.getLogger(__name__)

REFRESH_SECONDS = 1.0
_POLL_SECONDS = 0.1
_START_SECONDS = 5.0


class StoreRun:
    """Fills one store in a thread. `failure` is why it cannot begin, or cannot become current."""

    def __init__(self, definition: StoreDefinition, parent: Path, context: FeedContext) -> None:
        self.store = Store(definition, parent, system_clock)
        try:
            self._updater = StoreUpdater(self.store, open_feed(self.store, context))
        except BaseException:
            self.store.close()
            raise
        self.failure: Exception | None = None
        self.is_current = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, period_seconds: float) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(
            target=self._run, args=(period_seconds,), name=f"fill {self.store.definition.name}"
        )
        self._thread.start()

    def status(self) -> StoreStatus:
        """Returns the status, without how far the store is behind."""
        return describe(self.store, self._updater.problem)

    def close(self) -> None:
        """Ends the thread and closes the store. A load is abandoned."""
        self._ended.set()
        self._updater.end()
        if self._thread is not None:
            self._thread.join()
        self._updater.stop()
        self.store.close()

    def _run(self, period_seconds: float) -> None:
        try:
            while not self._start():
                if self._ended.wait(_START_SECONDS):
                    return
            self._updater.run(period_seconds, on_update=self._note_current)
        except Exception as error:
            self.failure = error

    def _start(self) -> bool:
        try:
            self._updater.feed.start()
        except UnavailableError as error:
            self._updater.problem = str(error)
            logger.warning("store %s cannot begin yet: %s", self.store.definition.name, error)
            return False
        return True

    def _note_current(self) -> None:
        state = self.store.state
        is_complete = state is not None and (
            state.is_bootstrapped or not self.store.definition.bootstrap
        )
        self.is_current = is_complete and not self._updater.feed.lag().behind

    @property
    def permanent_error(self) -> SleeperError | None:
        """The error of the last update, if another attempt does not help."""
        error = self._updater.error
        if isinstance(error, SleeperError) and not isinstance(error, UnavailableError):
            return error
        return None


def run_stores(
    definitions: Sequence[StoreDefinition],
    parent: Path,
    context: FeedContext,
    until_current: bool = False,
    period_seconds: float = REFRESH_SECONDS,
    listener: Callable[[Sequence[StoreStatus]], object] = lambda _: None,
) -> None:
    """Fills the stores until KeyboardInterrupt, or until each has all that its input has.

    Stores go on without each other: one whose update fails is tried again, and its status says why.
    Raises the error of an input that does not exist, or that cannot be read at the start; and with
    `until_current`, that of an update for which another attempt does not help.
    """
    with _open_all(definitions, parent, context) as runs:
        for each in runs:
            each.start(period_seconds)
        while True:
            for each in runs:
                if each.failure is not None:
                    raise each.failure
            listener([each.status() for each in runs])
            if until_current and _are_current(runs):
                return
            time.sleep(_POLL_SECONDS)


def _are_current(runs: Sequence[StoreRun]) -> bool:
    for each in runs:
        error = each.permanent_error
        if error is not None:
            raise error
    return all(each.is_current for each in runs)


@contextmanager
def _open_all(
    definitions: Sequence[StoreDefinition], parent: Path, context: FeedContext
) -> Iterator[list[StoreRun]]:
    runs: list[StoreRun] = []
    try:
        for each in definitions:
            runs.append(StoreRun(each, parent, context))  # noqa: PERF401 (closed after an error)
        yield runs
    finally:
        for run in runs:
            run.close()
