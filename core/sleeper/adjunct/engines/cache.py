"""The engine of a store that reads values when they are asked for, and keeps some in memory.

A *miss* is a key that is not in memory. Its value is read at the *state* of the engine, which names
a version of the input. A key without a value is kept too, so that it is read once. The keys that
were not used for the longest time make room for others.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from sleeper.adjunct.engines.engine import DeletedRange, Writes
from sleeper.errors import InvalidRequestError

ReadMissing = Callable[[Sequence[bytes], bytes], Sequence[bytes | None]]
"""Returns the values of keys at a state, in their order."""

_Entries = OrderedDict[bytes, bytes | None]

# What Python takes for an entry beside the bytes of its key and value, measured by tracemalloc.
_ENTRY_BYTES = 300


class CacheEngine:
    """See the protocol. Keys and values take at most `bytes_max` of memory.

    The values of one call are of one state, also if another one is applied meanwhile. Values that
    were read are kept only if the state is still the same, and a state is applied with the keys
    that it changes, so what is kept is always of the state.
    """

    def __init__(self, bytes_max: int, read_missing: ReadMissing) -> None:
        self._bytes_max = bytes_max
        self._read_missing = read_missing
        self._entries: _Entries = OrderedDict()
        self._state: bytes | None = None
        self._bytes = 0
        self._lock = threading.Lock()
        self.has_failed = False

    def get(self, key: bytes) -> bytes | None:
        return self.get_many((key,))[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._lock:
            state = self._state
            values = {key: self._entries[key] for key in keys if key in self._entries}
            for key in values:
                self._entries.move_to_end(key)
        missing = [key for key in dict.fromkeys(keys) if key not in values]
        if missing and state is not None:
            read = dict(zip(missing, self._read_missing(missing, state), strict=True))
            values |= read
            with self._lock:
                if self._state is state:
                    self._keep(read)
        return [values.get(key) for key in keys]

    def scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Raises InvalidRequestError: the keys in memory are not all."""
        del low, high
        raise InvalidRequestError(
            "a store with cache_bytes has no copy of its input (expected get or get_many, or a "
            "store without cache_bytes)"
        )

    def load(
        self, writes: Iterable[Writes], state: bytes, pause: Callable[[], None] | None = None
    ) -> int:
        """See the protocol. Keeps nothing of what is loaded."""
        del pause
        rows = sum(map(len, writes))
        self.apply((), state)
        return rows

    def apply(self, writes: Iterable[Writes], state: bytes) -> None:
        """See the protocol. Changes the keys that are in memory."""
        with self._lock:
            for each in writes:
                for deleted in each.deleted_ranges:
                    self._delete(deleted)
                pairs = zip(each.keys, each.values, strict=True)
                self._keep({key: value for key, value in pairs if key in self._entries})
            self._state = state

    def state(self) -> bytes | None:
        return self._state

    def fork(self, folder: Path | None) -> "CacheEngine":
        """Returns an engine that keeps nothing, so that many changes take no memory."""
        del folder  # for engines on disk
        return CacheEngine(self._bytes_max, self._read_missing)

    def catch_up(self) -> bool:
        """Does nothing: the process that reads is the one that writes."""
        return True

    def sync(self) -> None:
        """Does nothing."""

    def size(self) -> int:
        return self._bytes

    def close(self) -> None:
        """Does nothing: the memory is freed with the object."""

    def _delete(self, deleted: DeletedRange) -> None:
        inside = [
            key
            for key in self._entries
            if deleted.low <= key and (deleted.high is None or key < deleted.high)
        ]
        self._keep(dict.fromkeys(inside))

    def _keep(self, values: dict[bytes, bytes | None]) -> None:
        for key, value in values.items():
            self._bytes -= self._size_of(key)
            self._entries[key] = value
            self._bytes += self._size_of(key)
        while self._bytes > self._bytes_max:
            key = next(iter(self._entries))
            self._bytes -= self._size_of(key)
            del self._entries[key]

    def _size_of(self, key: bytes) -> int:
        if key not in self._entries:
            return 0
        return _ENTRY_BYTES + len(key) + len(self._entries[key] or b"")
