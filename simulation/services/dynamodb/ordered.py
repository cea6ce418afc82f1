"""Items in order: by partition key, and in a partition by sort key.

An *identity* is the primary key of an item, as a tuple of Python values. A partition of an index
has entries with equal sort keys, so an entry's *position* is its sort key and its identity.
"""

import zlib
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import Any

from simulation.services.dynamodb.values import Item

Identity = tuple[Any, ...]
Position = tuple[Any, Identity]


class OrderedItems:
    """The items of a table or an index."""

    def __init__(self) -> None:
        self._partitions: dict[Any, list[Position]] = {}
        self._items: dict[Identity, Item] = {}
        self._scan_order: list[Any] | None = None

    def __len__(self) -> int:
        return len(self._items)

    def get(self, identity: Identity) -> Item | None:
        """Returns the item of that identity, or None."""
        return self._items.get(identity)

    def put(self, partition: Any, sort: Any, identity: Identity, item: Item) -> None:
        """Adds an item. One of that identity must have the same partition and sort key."""
        if identity not in self._items:
            if partition not in self._partitions:
                self._scan_order = None
            insort(self._partitions.setdefault(partition, []), (sort, identity))
        self._items[identity] = item

    def remove(self, partition: Any, sort: Any, identity: Identity) -> None:
        """Removes an item that exists."""
        del self._items[identity]
        positions = self._partitions[partition]
        del positions[bisect_left(positions, (sort, identity))]
        if not positions:
            del self._partitions[partition]
            self._scan_order = None

    def positions(self, partition: Any) -> Sequence[Position]:
        """Returns the positions of a partition, in order."""
        return self._partitions.get(partition, ())

    def scan(self, after: tuple[Any, Position] | None) -> Iterator[Item]:
        """Yields all items, or those after a partition key and position.

        Partitions come in the order of a hash, as in DynamoDB.
        """
        if self._scan_order is None:
            self._scan_order = sorted(self._partitions, key=_hash)
        for partition in self._scan_order:
            if after is not None and _hash(partition) < _hash(after[0]):
                continue
            positions = self._partitions[partition]
            start = 0
            if after is not None and partition == after[0]:
                start = bisect_left(positions, after[1])
                start += positions[start : start + 1] == [after[1]]
            for _, identity in positions[start:]:
                yield self._items[identity]


def _hash(partition: Any) -> tuple[int, Any]:
    content = partition if isinstance(partition, bytes) else str(partition).encode()
    return zlib.crc32(content), partition
