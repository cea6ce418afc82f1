"""A store in the process that fills it: the version that serves, and the one being built."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from sleeper.adjunct.definition import (
    EngineType,
    StoreDefinition,
    StoreState,
    encode_state,
    new_state,
)
from sleeper.adjunct.engines import open_disk_engine
from sleeper.adjunct.engines.cache import CacheEngine, ReadMissing
from sleeper.adjunct.engines.engine import Engine, Writes
from sleeper.adjunct.engines.expiring import ExpiringEngine, with_expiry
from sleeper.adjunct.engines.memory import MemoryEngine
from sleeper.adjunct.versions.build import StoreBuild
from sleeper.adjunct.versions.folder import StoreFolder, VersionName
from sleeper.adjunct.versions.version import StoreVersion, make_version, read_state
from sleeper.clock import Clock
from sleeper.errors import DataError, InvalidRequestError, UnavailableError
from sleeper.storage.disk import FileLock

logger = logging.getLogger(__name__)

# Changes of more bytes than that become a version of their own, so that a reader sees all or none.
_ATOMIC_BYTES = 64 * 1024**2
_LOOKUP_SECONDS = 0.01


class Store:
    """A store that this process fills. One thread writes at a time.

    `current` is the version that serves, None if none is complete. `problem` says why a version
    on disk cannot be used, None if there was none or it can be. `rows_building` is the
    number of keys of the version being built, None if none is; `on_progress` is called as it grows.
    `read_missing` reads the keys that a store with `cache_bytes` does not have.
    """

    def __init__(self, definition: StoreDefinition, parent: Path | None, clock: Clock) -> None:
        self.definition = definition
        self.clock = clock
        self.current: StoreVersion | None = None
        self.problem: str | None = None
        self.rows_building: int | None = None
        self.on_progress: Callable[[], object] = lambda: None
        self.read_missing: ReadMissing = _read_nothing
        self._lock: FileLock | None = None
        self.folder: StoreFolder | None = None
        if parent is not None:
            self.folder = StoreFolder(parent, definition.name)
            self._lock = self.folder.lock(definition)
        elif definition.type is EngineType.ROCKSDB:
            raise InvalidRequestError(
                f"store {definition.name!r} has no path (expected a folder, or type "
                f"{EngineType.MEMORY})"
            )
        if self.folder is not None and definition.type is EngineType.ROCKSDB:
            try:
                self._open_current(self.folder)
            except BaseException:
                self.close()
                raise

    @property
    def state(self) -> StoreState | None:
        """The state of the version that serves."""
        return None if self.current is None else self.current.state

    @property
    def serving(self) -> StoreVersion:
        """The version that serves. UnavailableError if none is complete."""
        if self.current is None:
            raise UnavailableError(
                f"store {self.definition.name!r} has no complete version yet: it is being loaded "
                f"from {self.definition.input}"
            )
        return self.current

    def new_state(self) -> StoreState:
        """Returns the state of a version without data."""
        return new_state(self.definition)

    def saved_positions(self) -> dict[str, str]:
        """Returns the positions that survive the loss of the versions."""
        return {} if self.folder is None else self.folder.read_positions()

    def forget_positions(self) -> None:
        """Forgets these positions."""
        if self.folder is not None:
            self.folder.forget_positions()

    def discard(self) -> None:
        """Deletes the version that serves."""
        before, self.current = self.current, None
        if self.folder is not None:
            del before
            self.folder.delete_others(None)

    def build(
        self,
        writes: Iterable[Writes],
        finish: Callable[[], StoreState],
        is_sorted: bool = True,
    ) -> int:
        """Builds a version of the writes and switches to it. Returns the number of keys.

        `finish` returns its state, when all writes were taken. If `is_sorted`, the keys are in
        strictly ascending order. After an error, the version that served before still does.
        """
        with self.new_build() as build:
            rows = build.load(writes) if is_sorted else sum(map(build.write, writes))
            build.finish(finish())
        return rows

    def new_build(self, copied: StoreVersion | None = None) -> StoreBuild:
        """Begins a version that is written step by step, of no data or those of a version."""
        folder = self.folder if self.definition.type is EngineType.ROCKSDB else None
        name = None if folder is None else folder.new_version()
        self.rows_building = 0
        # The state stays as it was: only the last batch has the new one.
        content = b"" if copied is None else encode_state(copied.state)
        try:
            data = None if folder is None or name is None else folder.data(name)
            engine = self._open_engine(data) if copied is None else copied.engine.fork(data)
        except BaseException:
            self.discard_build(name, None)
            raise
        return StoreBuild(self, name, engine, content)

    def apply(self, writes: Iterable[Writes], finish: Callable[[], StoreState]) -> int:
        """Applies changes to the version that serves, all at once. Returns their number.

        `finish` returns the state, when all writes were taken. Many changes become a version of
        their own, a copy of the one that serves, which then takes its place. So do changes after a
        write that failed.
        """
        version = self.serving
        if version.engine.has_failed:
            return self._apply_to_copy(version, iter(writes), finish)
        taken: list[Writes] = []
        size = rows = 0
        rest = iter(writes)
        for each in rest:
            taken.append(each)
            rows += len(each)
            size += _size(each)
            if size > _ATOMIC_BYTES:
                return self._apply_to_copy(version, chain(taken, rest), finish)
        state = finish()
        version.engine.apply(taken, encode_state(state))
        version.set_state(state)
        return rows

    def save_state(self, state: StoreState) -> None:
        """Saves the state of the version that serves."""
        self.apply((), lambda: state)

    def sweep(self) -> None:
        """Deletes some of the values whose time to live has passed. A later call goes on."""
        version = self.current
        if version is None or not isinstance(version.engine, ExpiringEngine):
            return
        expired = version.engine.find_expired()
        if expired:
            self.apply((Writes(expired, [None] * len(expired)),), lambda: version.state)

    def save_positions(self) -> None:
        """Saves the positions apart from the data too, after making the data durable."""
        version = self.current
        if version is None or self.folder is None:
            return
        if version.engine.has_failed:
            self.save_state(version.state)
            version = self.serving
        version.engine.sync()
        if version.state.positions:
            self.folder.write_positions(version.state.positions)

    def fix(self) -> None:
        """Serves the version from now on as one that nobody changes any more.

        Such a version takes its place and is closed without delay for lookups of other threads.
        """
        version = self.current
        if version is None or version.folder is None:
            return
        name = self._name(version.folder)
        engine = self._open_engine(self._folder().data(name), is_fixed=True)
        self._replace(self._as_version(name, engine, version.state))

    def touch(self, now_ms: int) -> None:
        """Records that the input has nothing newer than the version, which is fixed."""
        version = self.serving
        if version.folder is not None:
            self._folder().write_updated(self._name(version.folder), now_ms)
        version.set_state(replace(version.state, updated_ms=now_ms))

    def build_apart(self, write: Callable[[StoreFolder, VersionName], int]) -> int:
        """Switches to a version that another process writes. Returns its number of keys.

        `write` gets the folder of the store and the name of the version. Nobody changes the version
        any more.
        """
        folder = self._folder()
        name = folder.new_version()
        self.rows_building = 0
        engine: Engine | None = None
        try:
            rows = write(folder, name)
            engine = self._open_engine(folder.data(name), is_fixed=True)
            state = read_state(engine, folder, name)
            folder.seal(name, state.dataset)
        except BaseException:
            self.discard_build(name, engine)
            raise
        self.switch(name, engine, state)
        return rows

    def note_progress(self, rows: int) -> None:
        """Adds to the number of keys of the version being built."""
        self.rows_building = (self.rows_building or 0) + rows
        self.on_progress()

    def create_empty(self, state: StoreState) -> None:
        """Switches to a version without data."""
        self.build((), lambda: state)

    def close(self) -> None:
        """Closes the version that serves, when its last reader has, and unlocks the folder."""
        try:
            self.save_positions()
        except UnavailableError as error:
            # The next start repeats what is not durable.
            logger.warning("store %s: %s", self.definition.name, str(error))
        finally:
            self.current = None
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def _apply_to_copy(
        self, version: StoreVersion, writes: Iterator[Writes], finish: Callable[[], StoreState]
    ) -> int:
        with self.new_build(version) as build:
            rows = sum(map(build.write, writes))
            build.finish(finish())
        return rows

    def discard_build(self, name: VersionName | None, engine: Engine | None) -> None:
        """Deletes a version that was not finished."""
        self.rows_building = None
        if engine is not None:
            engine.close()
        if name is not None:
            self._folder().delete(name)

    def finish_build(self, name: VersionName | None, engine: Engine, state: StoreState) -> None:
        """Seals a version and switches to it."""
        engine.apply((), encode_state(state))
        engine.sync()
        if name is not None:
            self._folder().seal(name, state.dataset)
        self.switch(name, engine, state)

    def switch(self, name: VersionName | None, engine: Engine, state: StoreState) -> None:
        """Makes a complete version the one that serves."""
        self.rows_building = None
        version = self._as_version(name, engine, state)
        if name is not None:
            try:
                self._folder().switch(name)
            except BaseException:
                version.close()
                raise
        self._replace(version)
        if name is not None:
            self._folder().delete_others(name)

    def _replace(self, version: StoreVersion) -> None:
        former, self.current = self.current, version
        if former is not None:
            # A lookup that is under way should not be the one that closes the former version.
            time.sleep(_LOOKUP_SECONDS)
            del former

    def _open_current(self, folder: StoreFolder) -> None:
        """Opens the version of the folder, if it can be used."""
        name = None
        try:
            name = self._find_version(folder)
            if name is not None:
                self.current = self._open_version(folder, name)
        except DataError as error:
            self.problem = str(error)
        folder.delete_others(name if self.current is not None else None)

    def _open_version(self, folder: StoreFolder, name: VersionName) -> StoreVersion:
        engine = self._open_engine(folder.data(name))
        try:
            return self._as_version(name, engine, read_state(engine, folder, name))
        except BaseException:
            # The next version may have the same folder, which is still locked otherwise.
            engine.close()
            raise

    def _find_version(self, folder: StoreFolder) -> VersionName | None:
        current, sealed = folder.current(), folder.find_sealed()
        if sealed is None or sealed == current:
            return sealed
        if current is None or sealed > current:
            folder.switch(sealed)
            return sealed
        raise DataError(f"store at {folder.path}: version {current} is not complete")

    def _open_engine(self, data: Path | None, is_fixed: bool = False) -> Engine:
        if self.definition.cache_bytes is not None:
            return CacheEngine(self.definition.cache_bytes, self.read_missing)
        engine: Engine = MemoryEngine()
        if data is not None:
            engine = open_disk_engine(self.definition.name, data, is_fixed=is_fixed)
        return with_expiry(engine, self.definition.ttl_ms, self.clock)

    def _as_version(
        self, name: VersionName | None, engine: Engine, state: StoreState
    ) -> StoreVersion:
        if name is None:
            return StoreVersion(self.definition.name, engine, state)
        folder = self._folder()
        return make_version(folder, name, engine, state, folder.lock_to_read(name))

    @staticmethod
    def _name(folder: Path) -> VersionName:
        name = VersionName.parse(folder.name)
        assert name is not None
        return name

    def _folder(self) -> StoreFolder:
        assert self.folder is not None
        return self.folder


def _read_nothing(keys: Sequence[bytes], state: bytes) -> Sequence[bytes | None]:
    del state
    return [None] * len(keys)


def _size(writes: Writes) -> int:
    return sum(map(len, writes.keys)) + sum(len(each) for each in writes.values if each)
