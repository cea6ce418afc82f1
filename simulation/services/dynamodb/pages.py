"""Pages of queries and scans of DynamoDB: in key order, up to 1 MB or a limit of items."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulation.services.dynamodb.conditions import (
    All,
    Attribute,
    BeginsWith,
    Between,
    Comparison,
    Condition,
    Given,
    Operand,
)
from simulation.services.dynamodb.ordered import OrderedItems, Position
from simulation.services.dynamodb.parser import Scope
from simulation.services.dynamodb.requests import condition_of, placeholders
from simulation.services.dynamodb.tables import KeySchema, Table, position_of
from simulation.services.dynamodb.values import Item, invalid, item_bytes, plain

_PAGE_BYTES_MAX = 1024**2


@dataclass(slots=True)
class Page:
    """The items that a request read, those that its filter kept, and where it stopped."""

    read: list[Item]
    kept: list[Item]
    last_key: Item | None


@dataclass(frozen=True, slots=True)
class Source:
    """What a query or scan reads: a table or one of its indexes."""

    table: Table
    index_name: str
    items: OrderedItems
    key: KeySchema

    def key_of(self, item: Item) -> Item:
        """Returns the attributes by which a read goes on after an item."""
        names = dict.fromkeys((*self.key.names, *self.table.key.names))
        return {name: item[name] for name in names}


def open_source(table: Table, request: Mapping[str, Any]) -> Source:
    """Returns what the request reads. An error if it names a missing index."""
    name = request.get("IndexName", "")
    if not name:
        return Source(table, "", table.items, table.key)
    if name not in table.indexes:
        raise invalid(f"The table does not have the specified index: {name}")
    if request.get("ConsistentRead"):
        raise invalid("Consistent reads are not supported on global secondary indexes")
    index = table.indexes[name]
    return Source(table, name, index.items, index.key)


def read_page(
    source: Source,
    request: Mapping[str, Any],
    items: Iterable[Item],
) -> Page:
    """Returns a page of the items."""
    limit = request.get("Limit")
    scope = Scope({}, *placeholders(request))
    has_filter = "FilterExpression" in request
    condition = condition_of(request, "FilterExpression") if has_filter else None
    page = Page([], [], None)
    size = 0
    for item in items:
        page.read.append(item)
        size += item_bytes(item)
        if condition is None or condition.holds(Scope(item, scope.names, scope.values)):
            page.kept.append(item)
        if size >= _PAGE_BYTES_MAX or len(page.read) == limit:
            page.last_key = source.key_of(item)
            break
    return page


def scanned(source: Source, request: Mapping[str, Any]) -> Iterator[Item]:
    """Yields the items of a scan."""
    start = request.get("ExclusiveStartKey")
    after = None if start is None else position_of(source.key, source.table.key, start)
    return source.items.scan(after)


def partition_of(source: Source, request: Mapping[str, Any]) -> Any:
    """Returns the partition key of a query."""
    partition, _ = _key_conditions(source, request)
    return partition


def queried(source: Source, request: Mapping[str, Any]) -> Iterator[Item]:
    """Yields the items of a query."""
    partition, bounds = _key_conditions(source, request)
    positions = source.items.positions(partition)
    first, last = bounds(positions)
    start = request.get("ExclusiveStartKey")
    forward = request.get("ScanIndexForward", True)
    if start is not None:
        _, position = position_of(source.key, source.table.key, start)
        if forward:
            first = max(first, bisect_right(positions, position))
        else:
            last = min(last, bisect_left(positions, position))
    chosen = positions[first:last]
    for _, identity in chosen if forward else reversed(chosen):
        item = source.items.get(identity)
        assert item is not None
        yield item


Bounds = Callable[[Sequence[Position]], tuple[int, int]]


def _key_conditions(source: Source, request: Mapping[str, Any]) -> tuple[Any, Bounds]:
    """Returns the partition key, and a function that finds the first and last position."""
    if "KeyConditionExpression" not in request:
        raise invalid("Either the KeyConditions or KeyConditionExpression parameter must be given")
    scope = Scope({}, *placeholders(request))
    partition: Any = None
    bounds: Bounds = _all_positions
    for condition in _conjuncts(condition_of(request, "KeyConditionExpression")):
        name = _attribute_name(condition, scope)
        if name == source.key.hash:
            if not isinstance(condition, Comparison) or condition.operator != "=":
                raise invalid("Query key condition not supported")
            partition = _given(condition.right, scope, source.key.types[name])
        elif name == source.key.range:
            bounds = _sort_bounds(condition, scope, source.key.types[name])
        else:
            raise invalid(f"Query condition missed key schema element: {source.key.hash}")
    if partition is None:
        raise invalid(f"Query condition missed key schema element: {source.key.hash}")
    return partition, bounds


def _conjuncts(condition: Condition) -> list[Condition]:
    if isinstance(condition, All):
        return [*_conjuncts(condition.left), *_conjuncts(condition.right)]
    return [condition]


def _attribute_name(condition: Condition, scope: Scope) -> str:
    operand: Operand | None = None
    if isinstance(condition, Comparison):
        operand = condition.left
    elif isinstance(condition, Between | BeginsWith):
        operand = condition.operand
    if not isinstance(operand, Attribute) or len(operand.path) != 1:
        raise invalid("Invalid operator used in KeyConditionExpression")
    return scope.name(str(operand.path[0]))


def _given(operand: Operand, scope: Scope, kind: str) -> Any:
    value = scope.value(operand.placeholder) if isinstance(operand, Given) else None
    if value is None or kind not in value:
        raise invalid(
            "One or more parameter values were invalid: Condition parameter type does not match "
            "schema type"
        )
    if not value[kind]:
        raise invalid("One or more parameter values are not valid: a key cannot be empty")
    return plain(value)


def _all_positions(positions: Sequence[Position]) -> tuple[int, int]:
    return 0, len(positions)


def _sort_bounds(condition: Condition, scope: Scope, kind: str) -> Bounds:
    if isinstance(condition, Between):
        low, high = (_given(each, scope, kind) for each in (condition.low, condition.high))
        if low > high:
            raise invalid("The BETWEEN operator requires upper bound to be greater than lower")
        return lambda positions: (_before(positions, low), _after(positions, high))
    if isinstance(condition, BeginsWith):
        prefix = _given(condition.prefix, scope, kind)
        return lambda positions: _prefix_bounds(positions, prefix)
    assert isinstance(condition, Comparison)
    value = _given(condition.right, scope, kind)
    bounds: Mapping[str, Bounds] = {
        "=": lambda positions: (_before(positions, value), _after(positions, value)),
        "<": lambda positions: (0, _before(positions, value)),
        "<=": lambda positions: (0, _after(positions, value)),
        ">": lambda positions: (_after(positions, value), len(positions)),
        ">=": lambda positions: (_before(positions, value), len(positions)),
    }
    if condition.operator not in bounds:
        raise invalid("Unsupported operator on KeyCondition")
    return bounds[condition.operator]


def _before(positions: Sequence[Position], value: Any) -> int:
    return bisect_left(positions, value, key=lambda position: position[0])


def _after(positions: Sequence[Position], value: Any) -> int:
    return bisect_right(positions, value, key=lambda position: position[0])


def _prefix_bounds(positions: Sequence[Position], prefix: Any) -> tuple[int, int]:
    first = _before(positions, prefix)
    last = bisect_left(
        positions, True, first, key=lambda position: not position[0].startswith(prefix)
    )
    return first, last
