"""Capacity of DynamoDB: units that requests use, and the limits of a partition key.

A write takes a unit per KiB, a read half a unit per 4 KiB, or a whole one if it is consistent.
Those of transactions take twice as many. DynamoDB limits the units per second of one partition
key of a table or an index.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from simulation.services.dynamodb.tables import Table
from simulation.services.dynamodb.values import Item, item_bytes, plain
from simulation.services.requests import client_error

WRITES_PER_SECOND_MAX = 1_000
READS_PER_SECOND_MAX = 3_000
_KIB = 1024

Charged = tuple[str, str, Any]
"""A table, an index of it or an empty name, and a partition key."""


class Capacity:
    """Counts units. With `is_limited` it refuses requests that exceed the limits of a key."""

    def __init__(self, is_limited: bool = False) -> None:
        self.is_limited = is_limited
        self.writes: Counter[Charged] = Counter()
        self.reads: Counter[Charged] = Counter()
        self._second = 0
        self._recent: dict[bool, Counter[Charged]] = {True: Counter(), False: Counter()}

    def use_writes(self, units: Counter[Charged], now_ms: int) -> bool:
        """Counts units of writes. Returns False, and counts nothing, if a limit is exceeded."""
        return self._use(units, now_ms, True)

    def use_reads(self, units: Counter[Charged], now_ms: int) -> bool:
        """Counts units of reads. Returns False, and counts nothing, if a limit is exceeded."""
        return self._use(units, now_ms, False)

    def _use(self, units: Counter[Charged], now_ms: int, is_write: bool) -> bool:
        if now_ms // 1000 != self._second:
            self._second = now_ms // 1000
            self._recent = {True: Counter(), False: Counter()}
        recent = self._recent[is_write]
        most = WRITES_PER_SECOND_MAX if is_write else READS_PER_SECOND_MAX
        # A request that alone exceeds the limit uses up the second.
        if self.is_limited and any(
            recent[each] and recent[each] + units[each] > most for each in units
        ):
            return False
        recent.update(units)
        (self.writes if is_write else self.reads).update(units)
        return True


def throttled(operation: str) -> Exception:
    """Returns the error of a request beyond the capacity."""
    return client_error(
        "ProvisionedThroughputExceededException",
        "The level of configured provisioned throughput for the table was exceeded.",
        operation,
    )


def write_units(
    table: Table, before: Item | None, after: Item | None, factor: int = 1
) -> Counter[Charged]:
    """Returns the units of a write, also those of the table's indexes."""
    item = after if after is not None else before
    units: Counter[Charged] = Counter()
    if item is None:
        return units
    size = max(item_bytes(each) for each in (before, after) if each is not None)
    units[(table.name, "", plain(item[table.key.hash]))] = factor * _units(size, _KIB)
    for name, index in table.indexes.items():
        for each in (before, after):
            if each is not None and index.key.has(each):
                partition = plain(each[index.key.hash])
                size = item_bytes(each) if index.holds_all else _KIB
                units[(table.name, name, partition)] = _units(size, _KIB)
    return units


def read_units(
    source: Charged, items: Iterable[Item], consistent: bool, factor: float = 1
) -> Counter[Charged]:
    """Returns the units of a read of items of one partition."""
    size = sum(map(item_bytes, items))
    units = _units(size, 4 * _KIB) * factor * (1 if consistent else 0.5)
    return Counter({source: units})


def _units(size: int, step: int) -> int:
    return max(1, -(-size // step))
