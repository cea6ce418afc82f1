"""Open stores of a process: it fills them, reads what another process fills, or either.

One process fills a shared store, and the others read its files. When the process that fills it ends
or dies, its lock is free, and one of the others takes over: it goes on from the saved position. All
openings in one process share one object, which is closed with the last of them.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from sleeper.adjunct.definition import EngineType, StoreDefinition, StoreState
from sleeper.adjunct.feeds.feed import find_problem
from sleeper.adjunct.feeds.opening import FeedContext, open_feed
from sleeper.adjunct.feeds.updater import StoreUpdater
from sleeper.adjunct.versions.folder import StoreFolder
from sleeper.adjunct.versions.status import StoreStatus, describe
from sleeper.adjunct.versions.store import Store
from sleeper.adjunct.versions.version import StoreReader, StoreVersion
from sleeper.clock import Clock, system_clock
from sleeper.errors import ConflictError, SleeperError, UnavailableError
from sleeper.renewal import Renewal

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.1

OpenContext = Callable[[], AbstractContextManager[FeedContext]]
"""Opens what feeds need, and closes it with the store."""


class Mode(StrEnum):
    """How a process has a store open.

    - FILL: it fills the store. ConflictError if another process does.
    - READ: another process fills the store.
    - SHARE: it fills a store on disk if no other process does, or else reads it and takes over when
      that process ends.
    """

    FILL = "fill"
    READ = "read"
    SHARE = "share"


@dataclass(frozen=True, slots=True)
class UpdateSettings:
    """When a store looks for new data: every `refresh_seconds`, None for only on request.

    The opening of a bootstrapped store waits for its first dataset for `bootstrap_seconds`.
    """

    refresh_seconds: float | None = 1.0
    bootstrap_seconds: float = 300.0
    clock: Clock = system_clock


@dataclass(frozen=True, slots=True)
class Filling:
    """What a store is filled by."""

    definition: StoreDefinition
    open_context: OpenContext


@dataclass(frozen=True, slots=True)
class _Role:
    """What this process does with the store now. `updater` is None if it only reads."""

    source: Store | StoreReader
    close: Callable[[], None]
    updater: StoreUpdater | None = None


class OpenStore:
    """A store that is open in a mode. Any threads may call it. `filling` is None to read."""

    def __init__(
        self,
        name: str,
        parent: Path | None,
        mode: Mode,
        settings: UpdateSettings,
        filling: Filling | None = None,
    ) -> None:
        self.name = name
        self._parent = parent
        self._mode = mode
        self._settings = settings
        self._filling = filling
        self._problem: str | None = None
        self._taking_over = threading.Lock()
        self._reading = threading.Lock()
        self._role = {Mode.FILL: self._fill, Mode.READ: self._read, Mode.SHARE: self._share}[mode]()
        self._renewal: Renewal | None = None
        if mode is not Mode.FILL and settings.refresh_seconds is not None:
            what = f"refresh of adjunct store {name}"
            self._renewal = Renewal(what, self._follow, settings.refresh_seconds)
            self._renewal.start()

    @property
    def serving(self) -> StoreVersion:
        """The version that serves. UnavailableError if none is complete."""
        return self._role.source.serving

    @property
    def updater(self) -> StoreUpdater:
        """What fills the store in this process."""
        assert self._role.updater is not None
        return self._role.updater

    def refresh(self) -> int:
        """Takes what the input has now. Returns the number of keys that were written.

        In a process that reads, takes what the other one has written, which is none of its own.
        UnavailableError if the input does not respond.
        """
        self._follow()
        updater = self._role.updater
        return 0 if updater is None else updater.update()

    def status(self) -> StoreStatus:
        """Returns how far the store is."""
        role = self._role
        if role.updater is None:
            return describe(role.source, self._problem)
        return describe(role.source, role.updater.problem, role.updater.feed.lag)

    def close(self) -> None:
        """Ends the updates and closes the store. Idempotent."""
        if self._renewal is not None:
            self._renewal.__exit__()
            self._renewal = None
        with self._taking_over:
            self._role.close()

    def _fill(self) -> _Role:
        assert self._filling is not None
        with ExitStack() as opened:
            store = Store(self._filling.definition, self._parent, self._settings.clock)
            opened.callback(store.close)
            context = opened.enter_context(self._filling.open_context())
            updater = StoreUpdater(store, open_feed(store, context))
            opened.callback(updater.stop)
            updater.start(self._settings.refresh_seconds, self._settings.bootstrap_seconds)
            return _Role(store, opened.pop_all().close, updater)

    def _read(self) -> _Role:
        assert self._parent is not None
        reader = StoreReader(self._parent, self.name, self._settings.clock)
        return _Role(reader, reader.close)

    def _share(self) -> _Role:
        """Fills the store, or reads it once there is a copy that the definition accepts."""
        assert self._filling is not None
        assert self._parent is not None
        definition, waited = self._filling.definition, 0.0
        while True:
            try:
                return self._fill()
            except ConflictError as error:
                conflict = error
            folder = StoreFolder(self._parent, self.name)
            _check_holder(definition, folder)
            role = self._read()
            if not definition.bootstrap or self._is_valid(role.source.state):
                return role
            role.close()
            if waited >= self._settings.bootstrap_seconds and not folder.is_building():
                raise UnavailableError(
                    f"store {self.name!r}: {conflict}, which has no complete copy after "
                    f"{waited:g} s"
                )
            time.sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS

    def _is_valid(self, state: StoreState | None) -> bool:
        assert self._filling is not None
        now_ms = self._settings.clock()
        return state is not None and find_problem(self._filling.definition, state, now_ms) is None

    def _follow(self) -> None:
        """Reads what another process has written, or takes over if none fills the store.

        While a thread takes over, which may load the store, the others go on reading.
        """
        role = self._role
        if not isinstance(role.source, StoreReader):
            return
        if self._mode is Mode.SHARE and self._taking_over.acquire(blocking=False):
            try:
                if self._role is role and self._take_over():
                    role.close()
                    return
            finally:
                self._taking_over.release()
        with self._reading:
            try:
                role.source.refresh()
            except SleeperError as error:
                self._problem = str(error)
                raise
            self._problem = None

    def _take_over(self) -> bool:
        try:
            self._role = self._fill()
        except ConflictError:
            return False
        logger.info("store %s: process %d fills it from now on", self.name, os.getpid())
        return True


@dataclass(eq=False)
class _Entry:
    """A shared store of this process, and the number of its openings."""

    definition: StoreDefinition
    openings: int = 0
    store: OpenStore | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_Key = tuple[int, Path | None, str]
_entries: dict[_Key, _Entry] = {}
_entries_lock = threading.Lock()


def open_shared(
    parent: Path | None, settings: UpdateSettings, filling: Filling
) -> tuple[OpenStore, Callable[[], None]]:
    """Opens a store that other threads and processes of this machine may have open too.

    Returns it, and what closes this opening. Waits for a complete copy if the store is
    bootstrapped. ConflictError if it is open with another definition, UnavailableError if there is
    no complete copy after `settings.bootstrap_seconds`.
    """
    definition = filling.definition
    parent = None if parent is None else parent.resolve()
    key = (os.getpid(), parent, definition.name)
    with _entries_lock:
        entry = _entries.setdefault(key, _Entry(definition))
        if entry.definition != definition:
            raise ConflictError(
                f"store {definition.name!r} is open in this process with other settings: "
                f"{entry.definition} (expected {definition})"
            )
        entry.openings += 1
    is_on_disk = parent is not None and definition.type is EngineType.ROCKSDB
    mode = Mode.SHARE if is_on_disk else Mode.FILL
    try:
        with entry.lock:
            if entry.store is None:
                entry.store = OpenStore(definition.name, parent, mode, settings, filling)
    except BaseException:
        _close_shared(key, entry)
        raise
    return entry.store, lambda: _close_shared(key, entry)


def _close_shared(key: _Key, entry: _Entry) -> None:
    """Closes the store if this is its last opening."""
    with _entries_lock:
        entry.openings -= 1
        if entry.openings:
            return
        if _entries.get(key) is entry:
            del _entries[key]
    if entry.store is not None:
        entry.store.close()


def _check_holder(definition: StoreDefinition, folder: StoreFolder) -> None:
    """Raises ConflictError if another process fills the store with something else."""
    holder = folder.read_holder()
    if holder is None:
        return  # it is about to write it
    for what, held, expected in (
        ("input", holder.input, definition.input),
        ("partition", holder.partition, definition.partition_text),
        ("extractor", holder.extractor, definition.extractor),
        ("time to live", holder.ttl_ms, definition.ttl_ms),
    ):
        if held != expected:
            raise ConflictError(
                f"store at {folder.path} is in use by process {holder.process} with {what} {held} "
                f"(expected {expected})"
            )
