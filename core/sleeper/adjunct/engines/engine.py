"""The port of engines, and the changes that they apply: keys and values as bytes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

CHUNK_ROWS = 1_000
"""The number of rows after which a load calls its `pause`, so that other threads can run."""

STATE_KEY = b""
"""The key of a version's state among its data. Keys of data are never empty."""

KEYS_START, KEYS_END = b"\x01", b"\x02"
"""The bytes from which on all keys are, and those above all of them."""


@dataclass(frozen=True, slots=True)
class DeletedRange:
    """The keys from `low` to before `high`, None for all from `low` on."""

    low: bytes
    high: bytes | None


@dataclass(frozen=True, slots=True)
class Writes:
    """Changes of a store: first the deleted ranges, then the keys in order, the last of equal ones
    wins. A value of None deletes its key. `written_ms` has the time of each value, None if that is
    the time of the change.
    """

    keys: Sequence[bytes] = ()
    values: Sequence[bytes | None] = ()
    deleted_ranges: Sequence[DeletedRange] = ()
    written_ms: Sequence[int | None] = ()

    def __len__(self) -> int:
        return len(self.keys) + len(self.deleted_ranges)


class Engine(Protocol):
    """The keys and values of one version, in the order of the keys' bytes.

    Any threads may read; one thread at a time writes. Raises UnavailableError if the disk or the
    memory is full, and DataError if a file is damaged.

    After a write that failed, `has_failed` is true: RocksDB refuses all others until it is opened
    again, also when the disk has space, so the next changes need a copy.
    """

    @property
    def has_failed(self) -> bool: ...

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of the key, None if there is none."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Returns the values of the keys, in their order."""

    def scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yields the keys from `low` to before `high` with their values, as of its first call."""

    def load(
        self, writes: Iterable[Writes], state: bytes, pause: Callable[[], None] | None = None
    ) -> int:
        """Fills an empty engine with keys in strictly ascending order. Returns their number."""

    def apply(self, writes: Iterable[Writes], state: bytes) -> None:
        """Applies the writes and saves the state, atomically for readers and for a crash."""

    def state(self) -> bytes | None:
        """Returns the state that was saved last."""

    def fork(self, folder: Path | None) -> Self:
        """Returns a copy in a new folder, whose changes do not affect this engine."""

    def catch_up(self) -> bool:
        """Makes changes of the writing process visible, if this one only reads.

        False if the engine has to be opened again for that.
        """

    def sync(self) -> None:
        """Makes what was written durable."""

    def size(self) -> int:
        """Returns the number of bytes on disk, or of keys and values in memory."""

    def close(self) -> None:
        """Closes the files. Idempotent."""
