"""Regions of many single keys as one value, so that a query of keys makes no object per key."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

from sleeper.partitions.region import Range, Region
from sleeper.schema.model import Field, KeyValue, next_key_value


class KeyRegions(Sequence[Region]):
    """A region per key of one key field, ascending, each key once.

    A region is made when it is read. A slice knows the keys that it is a slice of: `whole`, from
    `position` on.
    """

    def __init__(
        self,
        field: Field,
        values: Sequence[Any],
        whole: "KeyRegions | None" = None,
        position: int = 0,
    ) -> None:
        self.field = field
        self.values = values
        self.whole = self if whole is None else whole
        self.position = position

    @classmethod
    def from_values(cls, field: Field, values: Iterable[KeyValue]) -> "KeyRegions":
        """Returns the regions of keys in any order. The values fit the field."""
        return cls(field, sorted(set(values)))

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> Region: ...
    @overload
    def __getitem__(self, index: slice) -> "KeyRegions": ...
    def __getitem__(self, index: int | slice) -> "Region | KeyRegions":
        if isinstance(index, int):
            return self._region(self.values[index])
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise ValueError(f"a step of {step} (expected 1)")
        if stop - start == len(self):
            return self
        return KeyRegions(self.field, self.values[start:stop], self.whole, self.position + start)

    def __iter__(self) -> Iterator[Region]:
        return map(self._region, self.values)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, KeyRegions):
            return (self.field, self.values) == (other.field, other.values)
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"KeyRegions({self.field.name!r}, {self.values!r})"

    @property
    def hull(self) -> Region:
        """The smallest region that contains all of them. There is at least one."""
        end = next_key_value(self.field, self.values[-1])
        return Region((Range(self.values[0], end),))

    def before(self, value: KeyValue | None) -> int:
        """Returns the number of keys that precede a value; `None` is the end of all values."""
        return len(self) if value is None else bisect_left(self.values, value)

    def keep(self, selectors: Sequence[bool]) -> "KeyRegions":
        """Returns the keys for which the selector at their place is true."""
        kept = [value for value, keeps in zip(self.values, selectors, strict=True) if keeps]
        return self if len(kept) == len(self) else KeyRegions(self.field, kept)

    def _region(self, value: KeyValue) -> Region:
        return Region((Range(value, next_key_value(self.field, value)),))
