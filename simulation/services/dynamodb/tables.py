"""Tables of DynamoDB with their items and secondary indexes.

An index follows its table later. Until a transaction has been answered it is *unsettled*: reads of
several items may return an item of it as it was before, though they return another as it is now.
"""

import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from simulation.services.dynamodb.ordered import Identity, OrderedItems, Position
from simulation.services.dynamodb.values import Item, Value, invalid, item_bytes, plain, value_type

ITEM_BYTES_MAX = 400 * 1024
_HASH_BYTES_MAX, _RANGE_BYTES_MAX = 2048, 1024
# How long an index may be behind, and an eventually consistent read.
_LAG_MS_MAX = 2_000
_LAG = 0.3
_UNSETTLED = 0.5
# DynamoDB deletes an expired item within a few days. The time of an item is fixed by its key.
_EXPIRY_MS_MAX = 48 * 3_600_000
_EXPIRY_CHECK_MS = 3_600_000
_CHANGES_MAX = 1_000

Choose = Callable[[float], bool]


@dataclass(frozen=True, slots=True)
class KeySchema:
    """The attributes of a key with their types."""

    hash: str
    range: str | None
    types: Mapping[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the names, the partition key's first."""
        return (self.hash,) if self.range is None else (self.hash, self.range)

    def check(self, item: Item) -> None:
        """Raises an error if the item lacks an attribute of the key, or one is invalid."""
        for name, most in zip(self.names, (_HASH_BYTES_MAX, _RANGE_BYTES_MAX), strict=False):
            if name not in item:
                raise invalid(
                    f"One or more parameter values were invalid: Missing the key {name} in the item"
                )
            _check_key_value(name, item[name], self.types[name], most)

    def identity(self, item: Item) -> Identity:
        """Returns the identity of an item."""
        return tuple(plain(item[name]) for name in self.names)

    def sort(self, item: Item) -> Any:
        """Returns the sort key, empty if the schema has none."""
        return "" if self.range is None else plain(item[self.range])

    def has(self, item: Item) -> bool:
        """Returns whether the item has all attributes."""
        return all(name in item for name in self.names)


def _check_key_value(name: str, value: Value, kind: str, bytes_max: int) -> None:
    if value_type(value) != kind:
        raise invalid(
            f"One or more parameter values were invalid: Type mismatch for key {name} expected: "
            f"{kind} actual: {value_type(value)}"
        )
    content = value[kind]
    if not content:
        raise invalid(
            "One or more parameter values are not valid. The AttributeValue for a key attribute "
            f"cannot contain an empty string value. Key: {name}"
        )
    if kind != "N" and len(content.encode() if kind == "S" else content) > bytes_max:
        raise invalid(
            f"One or more parameter values were invalid: Size of key {name} has exceeded the "
            f"maximum size limit of {bytes_max} bytes"
        )


@dataclass(slots=True)
class Index:
    """A global secondary index. `changes` are those of the table that it has not followed yet."""

    key: KeySchema
    table_key: KeySchema
    holds_all: bool
    items: OrderedItems = field(default_factory=OrderedItems)
    changes: deque[tuple[int, Identity, Item | None]] = field(default_factory=deque)

    def follow(self, now_ms: int, choose: Choose) -> None:
        """Applies the table's changes, or those before the time by which an index may be late."""
        is_late = bool(self.changes) and choose(_LAG)
        until_ms = now_ms - _LAG_MS_MAX if is_late else now_ms
        while self.changes and self.changes[0][0] <= until_ms:
            _, identity, item = self.changes.popleft()
            self._apply(identity, item)

    def _apply(self, identity: Identity, item: Item | None) -> None:
        before = self.items.get(identity)
        if before is not None:
            self.items.remove(*self._position(before), identity)
        if item is not None and self.key.has(item):
            self.items.put(*self._position(item), identity, self._projected(item))

    def _position(self, item: Item) -> tuple[Any, Any]:
        return plain(item[self.key.hash]), self.key.sort(item)

    def _projected(self, item: Item) -> Item:
        if self.holds_all:
            return item
        names = {*self.key.names, *self.table_key.names}
        return {name: item[name] for name in item if name in names}


class Table:
    """A table. Its methods have no effect beyond it."""

    def __init__(self, name: str, key: KeySchema, indexes: Mapping[str, Index]) -> None:
        self.name = name
        self.key = key
        self.indexes = indexes
        self.expiry_attribute: str | None = None
        self.is_protected = False
        self._items = OrderedItems()
        self._unsettled: dict[Identity, Item | None] = {}
        self._recent: dict[Identity, tuple[int, Item | None]] = {}
        self._expiry_checked_ms = 0

    @property
    def items(self) -> OrderedItems:
        """Returns the items as of now."""
        return self._items

    def get(self, identity: Identity) -> Item | None:
        """Returns the item as of now."""
        return self._items.get(identity)

    def get_late(self, identity: Identity, now_ms: int, choose: Choose) -> Item | None:
        """Returns the item as an eventually consistent read does."""
        if identity in self._recent:
            changed_ms, before = self._recent[identity]
            if now_ms - changed_ms < _LAG_MS_MAX and choose(_LAG):
                return before
        return self._items.get(identity)

    def is_unsettled(self, identity: Identity, choose: Choose) -> bool:
        """Returns whether a transaction in progress on the item shows."""
        return identity in self._unsettled and choose(_UNSETTLED)

    def before_unsettled(self, identity: Identity) -> Item | None:
        """Returns the item as it was before the transaction in progress."""
        return self._unsettled[identity]

    def settle(self, identity: Identity) -> None:
        """Ends a transaction in progress on an item."""
        self._unsettled.pop(identity, None)

    def mark_unsettled(self, identity: Identity) -> None:
        """Begins a transaction on an item, before its change."""
        self._unsettled.setdefault(identity, self._items.get(identity))

    def check(self, item: Item) -> None:
        """Raises an error if the item cannot be stored."""
        self.key.check(item)
        for name, index in self.indexes.items():
            for attribute in index.key.names:
                kind = index.key.types[attribute]
                if attribute in item and value_type(item[attribute]) != kind:
                    raise invalid(
                        "One or more parameter values were invalid: Type mismatch for Index Key "
                        f"{attribute} Expected: {kind} Actual: {value_type(item[attribute])} "
                        f"IndexName: {name}"
                    )
        if item_bytes(item) > ITEM_BYTES_MAX:
            raise invalid("Item size has exceeded the maximum allowed size")

    def write(self, identity: Identity, item: Item | None, now_ms: int) -> None:
        """Replaces the item, or deletes it (None)."""
        before = self._items.get(identity)
        self._remember(identity, before, now_ms)
        if item is not None:
            partition, sort = plain(item[self.key.hash]), self.key.sort(item)
            self._items.put(partition, sort, identity, item)
        elif before is not None:
            partition, sort = plain(before[self.key.hash]), self.key.sort(before)
            self._items.remove(partition, sort, identity)
        for index in self.indexes.values():
            index.changes.append((now_ms, identity, item))
            if len(index.changes) > _CHANGES_MAX:
                index.follow(now_ms, lambda _probability: False)

    def expire(self, now_ms: int) -> None:
        """Deletes expired items, some time after their expiry."""
        if self.expiry_attribute is None or now_ms - self._expiry_checked_ms < _EXPIRY_CHECK_MS:
            return
        self._expiry_checked_ms = now_ms
        for item in [each for each in self._items.scan(None) if self._is_expired(each, now_ms)]:
            self.write(self.key.identity(item), None, now_ms)

    def _is_expired(self, item: Item, now_ms: int) -> bool:
        assert self.expiry_attribute is not None
        value = item.get(self.expiry_attribute, {}).get("N")
        if value is None:
            return False
        overdue_ms = now_ms - int(value) * 1000
        if overdue_ms <= 0:
            return False
        return overdue_ms > zlib.crc32(repr(self.key.identity(item)).encode()) % _EXPIRY_MS_MAX

    def _remember(self, identity: Identity, before: Item | None, now_ms: int) -> None:
        self._recent.pop(identity, None)
        self._recent[identity] = (now_ms, before)
        for old in _older(self._recent, now_ms - _LAG_MS_MAX):
            del self._recent[old]


def _older(recent: Mapping[Identity, tuple[int, Item | None]], ms: int) -> list[Identity]:
    """Returns the identities of changes before that time, which come first."""
    old: list[Identity] = []
    for identity, (changed_ms, _) in recent.items():
        if changed_ms >= ms:
            break
        old.append(identity)
    return old


def position_of(key: KeySchema, table_key: KeySchema, item: Item) -> tuple[Any, Position]:
    """Returns partition key and position of an item in the order of a table or index."""
    return plain(item[key.hash]), (key.sort(item), table_key.identity(item))


def visible_items(
    items: Iterator[Item], table: Table, choose: Choose, now_ms: int, consistent: bool
) -> Iterator[Item]:
    """Yields the items of a read of several items of a table, each as the read sees it."""
    for item in items:
        identity = table.key.identity(item)
        seen: Item | None = item
        if table.is_unsettled(identity, choose):
            seen = table.before_unsettled(identity)
        elif not consistent:
            seen = table.get_late(identity, now_ms, choose)
        if seen is not None:
            yield seen
