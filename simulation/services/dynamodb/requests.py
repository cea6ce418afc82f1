"""What requests of DynamoDB mean: their expressions, writes and reads of one table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulation.services.dynamodb.conditions import Condition, parse_condition
from simulation.services.dynamodb.ordered import Identity
from simulation.services.dynamodb.parser import Path, Scope, parse_projection
from simulation.services.dynamodb.tables import KeySchema, Table
from simulation.services.dynamodb.updates import parse_update
from simulation.services.dynamodb.values import Item, Value, invalid, stored
from simulation.services.requests import client_error

_EXPRESSIONS = (
    "ConditionExpression",
    "FilterExpression",
    "KeyConditionExpression",
)


class ConditionFailedError(Exception):
    """The condition of a write does not hold for `item`."""

    def __init__(self, item: Item | None) -> None:
        super().__init__("the conditional request failed")
        self.item = item


@dataclass(frozen=True, slots=True)
class Write:
    """A write of one item: its table, the item's identity and key, and the request."""

    table: Table
    identity: Identity
    key: Item
    request: Mapping[str, Any]
    kind: str

    def result(self, before: Item | None) -> Item | None:
        """Returns the item after the write. ConditionFailedError if the condition does not hold."""
        scope = Scope(before or {}, *placeholders(self.request))
        check_placeholders(self.request)
        if "ConditionExpression" in self.request:
            condition = condition_of(self.request, "ConditionExpression")
            if not condition.holds(scope):
                raise ConditionFailedError(before)
        if self.kind == "Delete":
            return None
        if self.kind == "ConditionCheck":
            return before
        after = self._after(before, scope)
        self.table.check(after)
        return after

    def _after(self, before: Item | None, scope: Scope) -> Item:
        if self.kind == "Put":
            return {name: stored(value) for name, value in self.request["Item"].items()}
        whole = Scope(before if before is not None else self.key, scope.names, scope.values)
        if "UpdateExpression" not in self.request:
            return whole.item
        update = parse_update(self.request["UpdateExpression"])
        return update.apply(whole, frozenset(self.table.key.names))


def open_write(table: Table, kind: str, request: Mapping[str, Any]) -> Write:
    """Returns the write of a request. An error if its key is invalid."""
    if kind == "Put":
        table.key.check(request["Item"])
        key = {name: request["Item"][name] for name in table.key.names}
    else:
        key = request["Key"]
        check_key(table.key, key)
    return Write(table, table.key.identity(key), key, request, kind)


def check_key(schema: KeySchema, key: Item) -> None:
    """Raises an error if the key has other attributes than the table's key."""
    if set(key) != set(schema.names):
        raise invalid("The provided key element does not match the schema")
    schema.check(key)


def placeholders(request: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Value]]:
    """Returns names and values of the request's placeholders."""
    values = request.get("ExpressionAttributeValues", {})
    return request.get("ExpressionAttributeNames", {}), {n: stored(v) for n, v in values.items()}


def check_placeholders(request: Mapping[str, Any]) -> None:
    """Raises an error if no expression of the request uses one of its placeholders."""
    used: set[str] = set()
    for kind in _EXPRESSIONS:
        if kind in request:
            used |= parse_condition(kind, request[kind])[1]
    if "UpdateExpression" in request:
        used |= parse_update(request["UpdateExpression"]).placeholders
    if "ProjectionExpression" in request:
        used |= parse_projection(request["ProjectionExpression"])[1]
    for member in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
        unused = [name for name in request.get(member, ()) if name not in used]
        if unused:
            raise invalid(
                f"Value provided in {member} unused in expressions: keys: "
                "{" + ", ".join(unused) + "}"
            )


def condition_of(request: Mapping[str, Any], kind: str) -> Condition:
    """Returns the condition of a member of the request."""
    return parse_condition(kind, request[kind])[0]


def project(request: Mapping[str, Any], items: Iterable[Item]) -> Iterator[Item]:
    """Yields the items with the attributes of the request's projection."""
    if "ProjectionExpression" not in request:
        yield from (dict(item) for item in items)
        return
    paths, _ = parse_projection(request["ProjectionExpression"])
    for item in items:
        scope = Scope(item, request.get("ExpressionAttributeNames", {}), {})
        yield _projected(scope, paths)


def _projected(scope: Scope, paths: Sequence[Path]) -> Item:
    result: Item = {}
    for path in paths:
        value = scope.find(path)
        if value is None:
            continue
        if len(path) > 1:
            raise NotImplementedError("projections of members")
        (name,) = scope.path(path)
        result[str(name)] = value
    return result


def condition_failed(operation: str, item: Item | None, request: Mapping[str, Any]) -> Exception:
    """Returns the error of a write whose condition does not hold."""
    more: dict[str, Any] = {}
    if item is not None and request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD":
        more["Item"] = item
    return client_error(
        "ConditionalCheckFailedException", "The conditional request failed", operation, more=more
    )
