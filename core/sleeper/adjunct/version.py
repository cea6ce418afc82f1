"""One version of a store: the data of an engine, with its state and codecs."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from sleeper.adjunct.contents.keys import KEYS_END, KeyCodec
from sleeper.adjunct.contents.values import ValueCodec
from sleeper.adjunct.engines.engine import Engine
from sleeper.adjunct.folder import StoreFolder
from sleeper.adjunct.store_state import Layout, StoreState, decode_state
from sleeper.errors import DataError, SleeperError

logger = logging.getLogger(__name__)

_KEYS_START = b"\x01"


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
            found = self.engine.get(content)
        except Exception as error:
            raise self._error(error) from error
        return None if found is None else self.values.decode(found)

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
        if self.state.layout is None:
            return
        start = _KEYS_START if low is None else self.keys.encode_bound(low)
        end = KEYS_END if high is None else self.keys.encode_bound(high)
        if start >= end:
            return
        for key, value in self._scan(start, end):
            yield self.keys.decode(key), self.values.decode(value)

    def all_contents(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields the bytes of all keys and of their values, in key order."""
        return self._scan(_KEYS_START, KEYS_END)

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


def read_state(engine: Engine, folder: StoreFolder, version: str) -> StoreState:
    """Returns the state of a version on disk. DataError if it has none that can be read."""
    content = engine.state()
    if content is None:
        raise DataError(f"store at {folder.path}: version {version} has no state")
    state = decode_state(content, f"store at {folder.path}")
    updated_ms = max(state.updated_ms, folder.read_updated(version))
    return replace(state, updated_ms=updated_ms)
