"""A version of a store that is being built."""

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Self

from sleeper.adjunct.definition import StoreState
from sleeper.adjunct.engines.engine import Engine, Writes
from sleeper.adjunct.versions.folder import VersionName

if TYPE_CHECKING:
    from sleeper.adjunct.versions.store import Store

# While a version serves, a load lets other threads run so often.
_PAUSE_SECONDS = 0.00005


class StoreBuild:
    """A version that is being built. It is invisible until `finish`, and discarded without it.

    `name` is None in memory. A context manager.
    """

    def __init__(
        self, store: "Store", name: VersionName | None, engine: Engine, state: bytes
    ) -> None:
        self._store = store
        self._name = name
        self._engine = engine
        self._state = state
        self._is_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.discard()

    def get(self, key: bytes) -> bytes | None:
        """Returns the bytes of the value that was written of a key, None if there is none."""
        return self._engine.get(key)

    def load(self, writes: Iterable[Writes]) -> int:
        """Fills a version without data with sorted keys, and returns their number."""
        pause = None if self._store.current is None else _pause
        return self._engine.load(self._count(writes), b"", pause)

    def write(self, writes: Writes) -> int:
        """Adds writes, and returns their number."""
        self._engine.apply((writes,), self._state)
        self._store.note_progress(len(writes))
        if self._store.current is not None:
            _pause()
        return len(writes)

    def finish(self, state: StoreState) -> None:
        """Seals the version with its state, and switches to it."""
        self._store.finish_build(self._name, self._engine, state)
        self._is_open = False

    def discard(self) -> None:
        """Deletes the version, unless it was finished. Idempotent."""
        if self._is_open:
            self._is_open = False
            self._store.discard_build(self._name, self._engine)

    def _count(self, writes: Iterable[Writes]) -> Iterator[Writes]:
        for each in writes:
            yield each
            self._store.note_progress(len(each))


def _pause() -> None:
    time.sleep(_PAUSE_SECONDS)
