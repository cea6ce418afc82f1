"""A version of a store that is being built."""

from collections.abc import Callable
from typing import Self

from sleeper.adjunct.contents.writes import Writes
from sleeper.adjunct.engines.engine import Engine
from sleeper.adjunct.store_state import StoreState


class StoreBuild:
    """A version that is being built. It is invisible until `finish`, and discarded without it.

    A context manager.
    """

    def __init__(
        self,
        engine: Engine,
        state: bytes,
        finish: Callable[[StoreState], None],
        discard: Callable[[], None],
        on_write: Callable[[int], None],
    ) -> None:
        self.engine = engine
        self._state = state
        self._finish = finish
        self._discard = discard
        self._on_write = on_write
        self._is_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.discard()

    def write(self, writes: Writes) -> int:
        """Adds writes, and returns their number."""
        self.engine.apply((writes,), self._state)
        self._on_write(len(writes))
        return len(writes)

    def finish(self, state: StoreState) -> None:
        """Seals the version with its state, and switches to it."""
        self._finish(state)
        self._is_open = False

    def discard(self) -> None:
        """Deletes the version, unless it was finished. Idempotent."""
        if self._is_open:
            self._is_open = False
            self._discard()
