"""Keys and values as bytes, on their way from an input into a version of a store."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeletedRange:
    """The keys from `low` to before `high`, None for all from `low` on."""

    low: bytes
    high: bytes | None


@dataclass(frozen=True, slots=True)
class Writes:
    """Changes of a store: first the deleted ranges, then the keys in order, the last of equal ones
    wins. A value of None deletes its key.
    """

    keys: Sequence[bytes] = ()
    values: Sequence[bytes | None] = ()
    deleted_ranges: Sequence[DeletedRange] = ()

    def __len__(self) -> int:
        return len(self.keys) + len(self.deleted_ranges)
