"""A store that the threads and processes of one machine share.

One process fills the store, and the others read its files. When the process that fills it ends or
dies, its lock is free, and one of the others takes over: it goes on from the saved position. All
openings in one process share one object, which is closed with the last of them.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sleeper.adjunct.definition import EngineType, StoreDefinition
from sleeper.adjunct.feeds.feed import find_problem
from sleeper.adjunct.open_store import (
    FilledStore,
    OpenContext,
    OpenStore,
    ReadStore,
    UpdateSettings,
)
from sleeper.adjunct.versions.folder import StoreFolder, StoreHolder
from sleeper.adjunct.versions.status import StoreStatus
from sleeper.adjunct.versions.version import StoreVersion
from sleeper.errors import ConflictError, UnavailableError
from sleeper.renewal import Renewal

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.1

Fill = Callable[[], FilledStore]


def open_shared(
    definition: StoreDefinition,
    parent: Path | None,
    settings: UpdateSettings,
    open_context: OpenContext,
) -> OpenStore:
    """Opens a store that other threads and processes of this machine may have open too.

    Waits for a complete copy if the store is bootstrapped. ConflictError if it is open with another
    definition, UnavailableError if there is no complete copy after `settings.bootstrap_seconds`.
    """
    place = None if parent is None else parent.resolve()
    key = (os.getpid(), place, definition.name)
    fill = partial(FilledStore, definition, parent, settings, open_context)
    with _entries_lock:
        entry = _entries.setdefault(key, _Entry(definition))
        if entry.definition != definition:
            raise ConflictError(
                f"store {definition.name!r} is open in this process with other settings: "
                f"{entry.definition} (expected {definition})"
            )
        entry.handles += 1
    handle = _Handle(key, entry)
    try:
        with entry.lock:
            if entry.store is None:
                is_on_disk = definition.type is EngineType.ROCKSDB
                if place is not None and is_on_disk:
                    entry.store = SharedStore(definition, place, settings, fill)
                else:
                    entry.store = fill()
            handle.store = entry.store
    except BaseException:
        handle.close()
        raise
    return handle


class SharedStore:
    """A store on disk that this process fills, or reads until it takes over. See `OpenStore`."""

    def __init__(
        self, definition: StoreDefinition, parent: Path, settings: UpdateSettings, fill: Fill
    ) -> None:
        self.name = definition.name
        self._definition = definition
        self._parent = parent
        self._settings = settings
        self._fill = fill
        self._folder = StoreFolder(parent, definition.name)
        self._lock = threading.Lock()
        self._role: FilledStore | ReadStore = self._begin()
        self._renewal: Renewal | None = None
        if settings.refresh_seconds is not None:
            what = f"refresh of adjunct store {definition.name}"
            self._renewal = Renewal(what, self._follow, settings.refresh_seconds)
            self._renewal.start()

    @property
    def serving(self) -> StoreVersion:
        """See the protocol."""
        return self._role.serving

    def refresh(self) -> int:
        """See the protocol. In a process that reads, takes what the other one has written."""
        self._follow()
        role = self._role
        return role.refresh() if isinstance(role, FilledStore) else 0

    def status(self) -> StoreStatus:
        """See the protocol."""
        return self._role.status()

    def close(self) -> None:
        """See the protocol."""
        if self._renewal is not None:
            self._renewal.__exit__()
            self._renewal = None
        with self._lock:
            self._role.close()

    def _begin(self) -> FilledStore | ReadStore:
        """Fills the store, or reads it once there is a copy that the definition accepts."""
        waited = 0.0
        while True:
            try:
                return self._fill()
            except ConflictError as error:
                conflict = error
            self._check_holder(self._folder.read_holder())
            reader = ReadStore(self._parent, self._definition.name, None)
            if not self._definition.bootstrap or self._is_valid(reader):
                return reader
            reader.close()
            if waited >= self._settings.bootstrap_seconds and not self._folder.is_building():
                raise UnavailableError(
                    f"store {self._definition.name!r}: {conflict}, which has no complete copy "
                    f"after {waited:g} s"
                )
            time.sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS

    def _is_valid(self, reader: ReadStore) -> bool:
        state = reader.state
        now_ms = self._settings.clock()
        return state is not None and find_problem(self._definition, state, now_ms) is None

    def _check_holder(self, holder: StoreHolder | None) -> None:
        """Raises ConflictError if another process fills the store with something else."""
        definition = self._definition
        if holder is None:
            return  # it is about to write it
        for what, found, expected in (
            ("input", holder.input, definition.input),
            ("partition", holder.partition, definition.partition_text),
            ("extractor", holder.extractor, definition.extractor),
        ):
            if found != expected:
                raise ConflictError(
                    f"store at {self._folder.path} is in use by process {holder.process} with "
                    f"{what} {found} (expected {expected})"
                )

    def _follow(self) -> None:
        """Takes over if no process fills the store, or else reads what it has written.

        While a thread takes over, which may load the store, the others go on reading.
        """
        reader = self._role
        if isinstance(reader, FilledStore):
            return
        if self._lock.acquire(blocking=False):
            try:
                if self._role is reader and self._take_over():
                    reader.close()
                    return
            finally:
                self._lock.release()
        reader.refresh()

    def _take_over(self) -> bool:
        try:
            self._role = self._fill()
        except ConflictError:
            return False
        logger.info("store %s: process %d fills it from now on", self._definition.name, os.getpid())
        return True


@dataclass(eq=False)
class _Entry:
    """A store of this process, and the number of its openings."""

    definition: StoreDefinition
    handles: int = 0
    store: OpenStore | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_Key = tuple[int, Path | None, str]
_entries: dict[_Key, _Entry] = {}
_entries_lock = threading.Lock()


class _Handle:
    """One opening of a store. See `OpenStore`."""

    store: OpenStore

    def __init__(self, key: _Key, entry: _Entry) -> None:
        self.name = key[2]
        self._key = key
        self._entry: _Entry | None = entry

    @property
    def serving(self) -> StoreVersion:
        return self.store.serving

    def refresh(self) -> int:
        return self.store.refresh()

    def status(self) -> StoreStatus:
        return self.store.status()

    def close(self) -> None:
        """Closes the store if this is its last opening."""
        with _entries_lock:
            entry, self._entry = self._entry, None
            if entry is None:
                return
            entry.handles -= 1
            if entry.handles:
                return
            if _entries.get(self._key) is entry:
                del _entries[self._key]
        if entry.store is not None:
            entry.store.close()
