"""Fills several stores until the process is interrupted, or until all are up to date."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from sleeper.adjunct.definition import StoreDefinition
from sleeper.adjunct.feeds.feed import Feed
from sleeper.adjunct.feeds.opening import FeedContext, opened_feed
from sleeper.adjunct.feeds.updater import StoreUpdater
from sleeper.adjunct.versions.status import StoreStatus, describe
from sleeper.adjunct.versions.store import Store
from sleeper.clock import system_clock
from sleeper.errors import SleeperError, UnavailableError

logger = logging.getLogger(__name__)

REFRESH_SECONDS = 1.0
_POLL_SECONDS = 0.1
_START_SECONDS = 5.0


class _StoreRun:
    """Fills one store in a thread. `failure` is why it cannot begin, or cannot become current.

    A context manager, which ends the thread. A load is abandoned.
    """

    def __init__(self, store: Store, feed: Feed, period_seconds: float) -> None:
        self.store = store
        self._updater = StoreUpdater(store, feed)
        self._period_seconds = period_seconds
        self.failure: Exception | None = None
        self.is_current = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"fill {store.definition.name}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._updater.end()
        if self._thread.ident is not None:
            self._thread.join()
        self._updater.stop()

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def status(self) -> StoreStatus:
        """Returns the status, without how far the store is behind."""
        return describe(self.store, self._updater.problem)

    def _run(self) -> None:
        try:
            while not self._start():
                if self._ended.wait(_START_SECONDS):
                    return
            self._updater.run(self._period_seconds, on_update=self._note_current)
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
    with ExitStack() as opened:
        runs: list[_StoreRun] = []
        for each in definitions:
            filled = opened_feed(each, parent, system_clock, context)
            store, feed = opened.enter_context(filled)
            runs.append(opened.enter_context(_StoreRun(store, feed, period_seconds)))
        for run in runs:
            run.start()
        while True:
            for run in runs:
                if run.failure is not None:
                    raise run.failure
            listener([run.status() for run in runs])
            if until_current and _are_current(runs):
                return
            time.sleep(_POLL_SECONDS)


def _are_current(runs: Sequence[_StoreRun]) -> bool:
    for each in runs:
        error = each.permanent_error
        if error is not None:
            raise error
    return all(each.is_current for each in runs)
