"""Versions of stores that do not change while a job reads them.

A job needs all that was committed to an input before it began, and the same data from its first
row to its last. So no process fills these stores all the time. The process that begins a job locks
the store, takes what the input has, closes the store, and reads it without following it. Jobs of
other processes on the machine find the same files. If another process has the lock, this one waits
until it can read what it needs. The system releases the lock of a killed process.
"""

import logging
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

from sleeper.adjunct.definition import StoreDefinition
from sleeper.adjunct.engines import check_disk_engine
from sleeper.adjunct.feeds.opening import FeedContext, find_lag, opened_feed
from sleeper.adjunct.versions.folder import StoreFolder
from sleeper.adjunct.versions.version import StoreReader, StoreVersion
from sleeper.clock import Clock
from sleeper.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_WAIT_SECONDS = 1_800.0


class PinnedStores:
    """The versions that jobs of this process read. Safe for threads.

    A version is kept for the next job, and closed when a newer one has replaced it and no job
    reads it any more.
    """

    def __init__(self, clock: Clock, wait_seconds: float = _WAIT_SECONDS) -> None:
        try:
            check_disk_engine("enrichment")
        except InvalidRequestError as error:
            # Another process may have the library: the job goes back to its queue.
            raise UnavailableError(f"rows cannot be enriched: {error}") from error
        self._clock = clock
        self._wait_seconds = wait_seconds
        self._versions: dict[Path, StoreVersion] = {}
        self._guard = threading.Lock()
        self._locks: dict[Path, threading.Lock] = defaultdict(threading.Lock)

    def pin(self, definition: StoreDefinition, parent: Path, context: FeedContext) -> StoreVersion:
        """Returns a version with all that the input had before this call.

        UnavailableError if the input does not respond or has no complete dataset, or another
        process loads the store for longer than 30 minutes.
        """
        path = parent / definition.name
        with self._guard:
            lock = self._locks[path]
        with lock:
            version = self._versions.get(path)
            if version is None or not _is_current(definition, version, context):
                version = self._find(definition, parent, context)
                self._versions[path] = version
                StoreFolder(parent, definition.name).delete_replaced()
            return version

    def close(self) -> None:
        """Closes the versions that no job reads any more. Idempotent."""
        self._versions.clear()

    def _find(
        self, definition: StoreDefinition, parent: Path, context: FeedContext
    ) -> StoreVersion:
        deadline = time.monotonic() + self._wait_seconds
        is_logged = False
        while True:
            version = _read(parent, definition.name)
            if version is not None and _is_current(definition, version, context):
                return version
            if self._fill(definition, parent, context):
                version = _read(parent, definition.name)
                if version is not None:
                    return version
                continue  # another process replaced it meanwhile
            if not is_logged:
                logger.info("store %s: waiting for the process that loads it", definition.name)
                is_logged = True
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"store {definition.name!r} at {parent}: another process has loaded it for "
                    f"more than {self._wait_seconds:g} s"
                )
            time.sleep(_POLL_SECONDS)

    def _fill(self, definition: StoreDefinition, parent: Path, context: FeedContext) -> bool:
        """Takes what the input has. False if another process fills the store."""
        with ExitStack() as opened:
            try:
                store, feed = opened.enter_context(
                    opened_feed(definition, parent, self._clock, context)
                )
            except ConflictError:
                return False
            feed.start()
            feed.update()
            if store.current is None:
                raise UnavailableError(
                    f"store {definition.name!r}: {definition.input} has no complete dataset"
                )
        return True


def _read(parent: Path, name: str) -> StoreVersion | None:
    """Opens the version that serves, None if there is none."""
    try:
        reader = StoreReader(parent, name)
    except NotFoundError:
        return None
    version = reader.current
    reader.close()
    return version


def _is_current(definition: StoreDefinition, version: StoreVersion, context: FeedContext) -> bool:
    if version.state.input != definition.input:
        return False
    return find_lag(definition, version.state, context).behind == 0
