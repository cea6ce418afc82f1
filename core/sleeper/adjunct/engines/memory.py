"""The engine in the memory of one process."""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from sleeper.adjunct.engines.engine import CHUNK_ROWS, Writes


class MemoryEngine:
    """See the protocol. A value of None stands for a key that was deleted.

    The lock protects the sorted keys and what is read with them. Lookups of keys need none, because
    one call of a dict is atomic.
    """

    def __init__(self) -> None:
        self._values: dict[bytes, bytes | None] = {}
        self._sorted: list[bytes] | None = []
        self._state: bytes | None = None
        self._bytes = 0
        self._lock = threading.Lock()
        self.has_failed = False
        self.get = self._values.get

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return list(map(self._values.get, keys))

    def scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        """See the protocol. Copies the range, so that later changes are not seen."""
        with self._lock:
            keys, values = self._sorted_keys(), self._values
            within = keys[bisect_left(keys, low) : bisect_left(keys, high)]
            pairs_copied = list(zip(within, map(values.get, within), strict=True))
        return ((key, value) for key, value in pairs_copied if value is not None)

    def load(
        self, writes: Iterable[Writes], state: bytes, pause: Callable[[], None] | None = None
    ) -> int:
        rows = 0
        for each in writes:
            pairs = zip(each.keys, each.values, strict=True)
            while chunk := dict(islice(pairs, CHUNK_ROWS)):
                self._values.update(chunk)
                self._bytes += sum(map(len, chunk)) + sum(len(v) for v in chunk.values() if v)
                rows += len(chunk)
                if pause is not None:
                    pause()
        self._sorted = None
        self._state = state
        return rows

    def apply(self, writes: Iterable[Writes], state: bytes) -> None:
        """See the protocol. One update of the dict changes all keys at once."""
        with self._lock:
            self._apply(writes, state)

    def _apply(self, writes: Iterable[Writes], state: bytes) -> None:
        changes: dict[bytes, bytes | None] = {}
        for each in writes:
            for deleted in each.deleted_ranges:
                changes |= dict.fromkeys(self._within(deleted.low, deleted.high))
                inside = [
                    key
                    for key in changes
                    if deleted.low <= key and (deleted.high is None or key < deleted.high)
                ]
                changes |= dict.fromkeys(inside)
            changes.update(zip(each.keys, each.values, strict=True))
        if any(key not in self._values for key in changes):
            self._sorted = None
        self._bytes += sum(self._growth(key, value) for key, value in changes.items())
        self._values.update(changes)
        self._state = state
        deleted_keys = [key for key, value in changes.items() if value is None]
        for key in deleted_keys:
            del self._values[key]
        if deleted_keys:
            self._sorted = None

    def state(self) -> bytes | None:
        return self._state

    def fork(self, folder: Path | None) -> "MemoryEngine":
        del folder  # for engines on disk
        copy = MemoryEngine()
        copy._values.update(self._values)
        copy._sorted, copy._state, copy._bytes = None, self._state, self._bytes
        return copy

    def catch_up(self) -> bool:
        """Does nothing: the process that reads is the one that writes."""
        return True

    def sync(self) -> None:
        """Does nothing."""

    def size(self) -> int:
        return self._bytes

    def close(self) -> None:
        """Does nothing: the memory is freed with the object."""

    def _growth(self, key: bytes, value: bytes | None) -> int:
        """Returns by how many bytes a change makes the data larger."""
        before, no_value = self._values.get(key), value is None
        size = 0 if before is None else len(key) + len(before)
        return (0 if no_value else len(key) + len(value or b"")) - size

    def _within(self, low: bytes, high: bytes | None) -> list[bytes]:
        keys = self._sorted_keys()
        end = len(keys) if high is None else bisect_left(keys, high)
        return keys[bisect_left(keys, low) : end]

    def _sorted_keys(self) -> list[bytes]:
        keys = self._sorted
        if keys is None:
            keys = self._sorted = sorted(self._values)
        return keys
