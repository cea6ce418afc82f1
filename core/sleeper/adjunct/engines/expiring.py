"""Values with a time to live, in any engine.

The *time to live* of a store is how long a value is returned after it was written, or after its
message was sent. The bytes of a value are followed by the time of its *expiry*, so that any
process that reads the files agrees. An expired value is not returned from then on. A *sweep*
deletes expired values, and then the engine frees their space.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from sleeper.adjunct.engines.engine import KEYS_END, KEYS_START, Engine, Writes
from sleeper.clock import Clock

SWEPT_MAX = 20_000
"""The number of keys that one step of a sweep examines, which takes about 20 ms."""

_SWEEPS_PER_LIFE = 4
_STAMP_BYTES = 8


class ExpiringEngine:
    """See the protocol. `engine` has the values with their expiry.

    Each call of a lookup, and each scan, uses one time for all of its keys.
    """

    def __init__(self, engine: Engine, ttl_ms: int, clock: Clock) -> None:
        self._engine = engine
        self._ttl_ms = ttl_ms
        self._clock = clock
        self._swept_to = KEYS_START
        self._sweep_due_ms = 0

    @property
    def has_failed(self) -> bool:
        return self._engine.has_failed

    def get(self, key: bytes) -> bytes | None:
        return _live(self._engine.get(key), self._clock())

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        now_ms = self._clock()
        return [_live(content, now_ms) for content in self._engine.get_many(keys)]

    def scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        now_ms, pairs = self._clock(), self._engine.scan(low, high)
        return (
            (key, content[:-_STAMP_BYTES])
            for key, content in pairs
            if not _is_expired(content, now_ms)
        )

    def load(
        self, writes: Iterable[Writes], state: bytes, pause: Callable[[], None] | None = None
    ) -> int:
        return self._engine.load(map(self._stamp, writes), state, pause)

    def apply(self, writes: Iterable[Writes], state: bytes) -> None:
        self._engine.apply(map(self._stamp, writes), state)

    def state(self) -> bytes | None:
        return self._engine.state()

    def fork(self, folder: Path | None) -> "ExpiringEngine":
        return ExpiringEngine(self._engine.fork(folder), self._ttl_ms, self._clock)

    def catch_up(self) -> bool:
        return self._engine.catch_up()

    def sync(self) -> None:
        self._engine.sync()

    def size(self) -> int:
        return self._engine.size()

    def close(self) -> None:
        self._engine.close()

    def find_expired(self) -> list[bytes]:
        """Returns the expired ones of the next keys of a sweep, so that the caller deletes them.

        A sweep begins four times in a time to live.
        """
        now_ms = self._clock()
        if now_ms < self._sweep_due_ms:
            return []
        examined = list(islice(self._engine.scan(self._swept_to, KEYS_END), SWEPT_MAX))
        if len(examined) < SWEPT_MAX:
            self._swept_to = KEYS_START
            self._sweep_due_ms = now_ms + self._ttl_ms // _SWEEPS_PER_LIFE
        else:
            self._swept_to = examined[-1][0] + b"\0"
        return [key for key, content in examined if _is_expired(content, now_ms)]

    def _stamp(self, writes: Writes) -> Writes:
        now_ms = self._clock()
        times = writes.written_ms or [None] * len(writes.values)
        values = [
            None if value is None else value + self._expiry(now_ms if time_ms is None else time_ms)
            for value, time_ms in zip(writes.values, times, strict=True)
        ]
        return Writes(writes.keys, values, writes.deleted_ranges)

    def _expiry(self, written_ms: int) -> bytes:
        return (max(written_ms, 0) + self._ttl_ms).to_bytes(_STAMP_BYTES, "big")


def with_expiry(engine: Engine, ttl_ms: int | None, clock: Clock) -> Engine:
    """Returns the engine of values with the time to live; itself if they live for ever."""
    return engine if ttl_ms is None else ExpiringEngine(engine, ttl_ms, clock)


def _live(content: bytes | None, now_ms: int) -> bytes | None:
    if content is None or _is_expired(content, now_ms):
        return None
    return content[:-_STAMP_BYTES]


def _is_expired(content: bytes, now_ms: int) -> bool:
    return int.from_bytes(content[-_STAMP_BYTES:], "big") <= now_ms
