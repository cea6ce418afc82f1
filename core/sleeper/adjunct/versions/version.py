"""Versions of a store: the data of an engine with its state and codecs, and who reads it."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sleeper.adjunct.contents.keys import KeyCodec
from sleeper.adjunct.contents.values import ValueCodec
from sleeper.adjunct.definition import Layout, StoreState, decode_state
from sleeper.adjunct.engines import open_disk_engine
from sleeper.adjunct.engines.engine import KEYS_END, KEYS_START, Engine
from sleeper.adjunct.engines.expiring import with_expiry
from sleeper.adjunct.versions.folder import StoreFolder, VersionName
from sleeper.clock import Clock, system_clock
from sleeper.errors import DataError, SleeperError, UnavailableError
from sleeper.storage.disk import FileLock

logger = logging.getLogger(__name__)

# A version may be replaced and deleted between its name and its lock.
_TRIES = 5


class StoreVersion:
    """A version that serves lookups. It is closed when nothing refers to it any more.

    So an iterator over it can finish after another version has taken its place. `folder` is that of
    the version, None in memory.
    """

    def __init__(
        self,
        store: str,
        engine: Engine,
        state: StoreState,
        on_close: Callable[[], object] = lambda: None,
        folder: Path | None = None,
    ) -> None:
        self.engine = engine
        self.folder = folder
        self._store = store
        self._on_close = on_close
        self._is_closed = False
        self._layout: Layout | None = None
        self.set_state(state)

    def set_state(self, state: StoreState) -> None:
        """Takes the state that the engine has now."""
        if state.layout is not None and state.layout != self._layout:
            self.keys = KeyCodec(self._store, state.layout)
            self.values = ValueCodec(state.layout)
            self._layout = state.layout
        self.state = state

    def get(self, key: Any) -> Any:
        """Returns the value of a key, None if there is none."""
        if self.state.layout is None:
            return None
        content = self.keys.encode(key)
        try:
            value = self.engine.get(content)
        except Exception as error:
            raise self._error(error) from error
        return None if value is None else self.values.decode(value)

    def get_many(self, keys: list[Any]) -> list[Any]:
        """Returns the values of keys, in their order."""
        if self.state.layout is None:
            return [None] * len(keys)
        return self.values.decode_many(self.get_contents(self.keys.encode_many(keys)))

    def get_contents(self, keys: list[bytes]) -> list[bytes | None]:
        """Returns the bytes of the values of keys, which are bytes too, in their order."""
        try:
            return self.engine.get_many(keys)
        except Exception as error:
            raise self._error(error) from error

    def scan(self, low: Any = None, high: Any = None) -> Iterator[tuple[Any, Any]]:
        """Yields the keys from `low` to before `high`, None for no bound, with their values."""
        for key, content in self.scan_contents(low, high):
            yield key, self.values.decode(content)

    def scan_contents(self, low: Any = None, high: Any = None) -> Iterator[tuple[Any, bytes]]:
        """Yields the keys as `scan`, with the bytes of their values."""
        if self.state.layout is None:
            return
        start = KEYS_START if low is None else self.keys.encode_bound(low)
        end = KEYS_END if high is None else self.keys.encode_bound(high)
        if start >= end:
            return
        for key, value in self._scan(start, end):
            yield self.keys.decode(key), value

    def all_contents(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields the bytes of all keys and of their values, in key order."""
        return self._scan(KEYS_START, KEYS_END)

    def _scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        try:
            yield from self.engine.scan(low, high)
        except Exception as error:
            raise self._error(error) from error

    def close(self) -> None:
        """Closes the engine. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self.engine.close()
            self._on_close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:
            logger.exception("store %s: could not close a version", self._store)

    def _error(self, error: Exception) -> SleeperError:
        if isinstance(error, SleeperError):
            return error
        return DataError(
            f"store {self._store!r} cannot be read: {error} (`sleeper adjunct rebuild` makes it "
            "again)"
        )


class Lookups(ABC):
    """Lookups in the version that serves. Any threads may call them.

    UnavailableError as long as none is complete, InvalidRequestError for a key of another type, and
    DataError if a file is damaged.
    """

    @property
    @abstractmethod
    def _version(self) -> StoreVersion:
        """The version that serves."""

    def get(self, key: Any) -> Any:
        """Returns the value of a key, None if there is none.

        A key is the row key, a tuple if it has several fields. The value of a row is a mapping of
        its value and sort fields.
        """
        return self._version.get(key)

    def get_many(self, keys: Sequence[Any]) -> list[Any]:
        """Returns the values of keys, in their order. All are of one version."""
        return self._version.get_many(list(keys))

    def range(self, low: Any = None, high: Any = None) -> Iterator[tuple[Any, Any]]:
        """Yields keys from `low` to before `high` with their values, in key order.

        None is an open end. Of several key fields, a bound may have the first ones only. The
        iterator reads one version as it is now, also when another takes its place.
        """
        return self._version.scan(low, high)

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Yields all keys with their values, as `range`."""
        return self.range()


class StoreReader:
    """Reads the version that serves, and what the process writes that fills the store.

    `current` is None as long as there is no complete version.
    """

    def __init__(self, parent: Path, name: str, clock: Clock = system_clock) -> None:
        self._clock = clock
        self.folder = StoreFolder(parent, name)
        if not self.folder.path.is_dir():
            raise self.folder.missing_error()
        self.current: StoreVersion | None = None
        self._name: VersionName | None = None
        self.refresh()

    @property
    def state(self) -> StoreState | None:
        """The state of the version that serves."""
        return None if self.current is None else self.current.state

    @property
    def serving(self) -> StoreVersion:
        """The version that serves. UnavailableError if none is complete."""
        if self.current is None:
            raise UnavailableError(
                f"store at {self.folder.path} has no complete version (expected a process that "
                "fills it, with type rocksdb)"
            )
        return self.current

    def refresh(self) -> None:
        """Takes over a new version, or what was written to the current one."""
        for _ in range(_TRIES):
            name = self.folder.current()
            if name is None:
                self.current = self._name = None
                return
            if name == self._name and self.current is not None and self._catch_up(self.current):
                return
            version = open_version(self.folder, name, self._clock)
            if version is not None:
                self.current, self._name = version, name
                return
        raise UnavailableError(f"store at {self.folder.path}: version {name} cannot be locked")

    def close(self) -> None:
        """Closes the version when its last reader has."""
        self.current = None

    def _catch_up(self, version: StoreVersion) -> bool:
        """Returns whether the version has all changes; otherwise it has to be opened again."""
        if not version.engine.catch_up():
            return False
        assert self._name is not None
        version.set_state(read_state(version.engine, self.folder, self._name))
        return True


def open_version(
    folder: StoreFolder, name: VersionName, clock: Clock = system_clock
) -> StoreVersion | None:
    """Opens a version to read it as it is now. None if it was deleted."""
    lock = folder.lock_to_read(name)
    if lock is None:
        return None
    try:
        engine = open_disk_engine(folder.name, folder.data(name), reads_only=True)
        state = read_state(engine, folder, name)
    except BaseException:
        lock.release()
        raise
    return make_version(folder, name, with_expiry(engine, state.ttl_ms, clock), state, lock)


def make_version(
    folder: StoreFolder, name: VersionName, engine: Engine, state: StoreState, lock: FileLock | None
) -> StoreVersion:
    """Returns a version on disk, which its lock protects from deletion until it is closed."""
    on_close = partial(folder.release, name, lock)
    return StoreVersion(folder.name, engine, state, on_close, folder.version(name))


def read_state(engine: Engine, folder: StoreFolder, version: VersionName) -> StoreState:
    """Returns the state of a version on disk. DataError if it has none that can be read."""
    content = engine.state()
    if content is None:
        raise DataError(f"store at {folder.path}: version {version} has no state")
    state = decode_state(content, f"store at {folder.path}")
    updated_ms = max(state.updated_ms, folder.read_updated(version))
    return replace(state, updated_ms=updated_ms)
