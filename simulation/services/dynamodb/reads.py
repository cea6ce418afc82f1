"""The reads of a simulated DynamoDB. A batch may be carried out in part."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from simulation.services.dynamodb.administration import TablesClient
from simulation.services.dynamodb.capacity import Charged, read_units, throttled
from simulation.services.dynamodb.ordered import Identity
from simulation.services.dynamodb.pages import (
    Page,
    open_source,
    partition_of,
    queried,
    read_page,
    scanned,
)
from simulation.services.dynamodb.requests import check_key, check_placeholders, project
from simulation.services.dynamodb.tables import Table, visible_items
from simulation.services.dynamodb.transactions import cancelled
from simulation.services.dynamodb.values import Item, invalid, item_bytes
from simulation.services.paginator import Paginator

_READS_PER_BATCH = 100
_BATCH_READ_BYTES_MAX = 16 * 1024**2
PARTIAL = 0.02
"""The part of the requests of batches that are not carried out."""


class ReadingClient(TablesClient):
    """The methods of a client that read items."""

    def get_item(self, **request: Any) -> dict[str, Any]:
        """Returns an item."""

        def effect() -> dict[str, Any]:
            table = self._table(request["TableName"], "GetItem")
            check_key(table.key, request["Key"])
            identity = table.key.identity(request["Key"])
            is_consistent = bool(request.get("ConsistentRead"))
            item = self._read(table, identity, is_consistent)
            charged = read_units((table.name, "", identity[0]), _one(item), is_consistent)
            self._charge_reads(charged, "GetItem")
            return {} if item is None else {"Item": next(project(request, [item]))}

        return self._send("get_item", request["TableName"], effect, target_of(request["Key"]))

    def batch_get_item(self, **request: Any) -> dict[str, Any]:
        """Returns items of one or more tables."""
        wanted = [
            (name, members, key)
            for name, members in request["RequestItems"].items()
            for key in members["Keys"]
        ]
        if not 0 < len(wanted) <= _READS_PER_BATCH:
            raise invalid("Too many items requested for the BatchGetItem call")

        def effect() -> dict[str, Any]:
            read: dict[str, list[Item]] = {name: [] for name in request["RequestItems"]}
            self._check_batch_keys(request["RequestItems"])
            unread: dict[str, Any] = {}
            size = 0
            for position, (name, members, key) in enumerate(wanted):
                item, is_read = self._read_of_batch(name, members, key, position)
                size += 0 if item is None else item_bytes(item)
                if not is_read or (position and size > _BATCH_READ_BYTES_MAX):
                    unread.setdefault(name, {**members, "Keys": []})["Keys"].append(key)
                elif item is not None:
                    read[name] += project(members, [item])
            return {"Responses": read, "UnprocessedKeys": unread}

        return self._send("batch_get_item", next(iter(request["RequestItems"])), effect)

    def transact_get_items(self, **request: Any) -> dict[str, Any]:
        """Returns items as of one time."""
        parts = [part["Get"] for part in request["TransactItems"]]

        def effect() -> dict[str, Any]:
            responses = []
            for part in parts:
                table = self._table(part["TableName"], "TransactGetItems")
                check_key(table.key, part["Key"])
                identity = table.key.identity(part["Key"])
                if table.is_unsettled(identity, self._choose):
                    raise cancelled([{"Code": "TransactionConflict"}])
                item = table.get(identity)
                units = read_units((table.name, "", identity[0]), _one(item), True, 2)
                self._charge_reads(units, "TransactGetItems")
                responses.append({} if item is None else {"Item": next(project(part, [item]))})
            return {"Responses": responses}

        return self._send("transact_get_items", parts[0]["TableName"], effect)

    def query(self, **request: Any) -> dict[str, Any]:
        """Returns a page of the items of a partition."""

        def effect() -> dict[str, Any]:
            check_placeholders(request)
            source = open_source(self._table(request["TableName"], "Query"), request)
            self._follow(source.table)
            items = queried(source, request)
            page = read_page(source, request, self._visible(source.table, items, request))
            charged = (source.table.name, source.index_name, partition_of(source, request))
            return self._page(page, charged, request, "Query")

        values = request.get("ExpressionAttributeValues", {})
        return self._send("query", request["TableName"], effect, target_of(values))

    def scan(self, **request: Any) -> dict[str, Any]:
        """Returns a page of all items."""

        def effect() -> dict[str, Any]:
            check_placeholders(request)
            source = open_source(self._table(request["TableName"], "Scan"), request)
            self._follow(source.table)
            items = scanned(source, request)
            page = read_page(source, request, self._visible(source.table, items, request))
            charged = (source.table.name, source.index_name, "*")
            return self._page(page, charged, request, "Scan")

        return self._send("scan", request["TableName"], effect)

    def get_paginator(self, operation: str) -> Paginator:
        """Returns the paginator of `query`, `scan` or `list_tables`."""
        return Paginator(getattr(self, operation), "ExclusiveStartKey", "LastEvaluatedKey", "Limit")

    def _charge_reads(self, units: Counter[Charged], operation: str) -> None:
        if not self._service.capacity.use_reads(units, self._now_ms()):
            raise throttled(operation)

    def _check_batch_keys(self, requests: Mapping[str, Any]) -> None:
        for name, members in requests.items():
            table = self._table(name, "BatchGetItem")
            for key in members["Keys"]:
                check_key(table.key, key)
            identities = [table.key.identity(key) for key in members["Keys"]]
            if len(set(identities)) < len(identities):
                raise invalid("Provided list of item keys contains duplicates")

    def _read_of_batch(
        self, name: str, members: Mapping[str, Any], key: Item, position: int
    ) -> tuple[Item | None, bool]:
        """Returns the item, and False if it was not read."""
        table = self._table(name, "BatchGetItem")
        identity = table.key.identity(key)
        is_consistent = bool(members.get("ConsistentRead"))
        item = self._read(table, identity, is_consistent)
        if table.is_unsettled(identity, self._choose):
            item = table.before_unsettled(identity)
        units = read_units((table.name, "", identity[0]), _one(item), is_consistent)
        has_capacity = self._service.capacity.use_reads(units, self._now_ms())
        return item, has_capacity and not (position and self._choose(PARTIAL))

    def _read(self, table: Table, identity: Identity, is_consistent: bool) -> Item | None:
        if is_consistent:
            return table.get(identity)
        return table.get_late(identity, self._now_ms(), self._choose)

    def _visible(
        self, table: Table, items: Iterator[Item], request: Mapping[str, Any]
    ) -> Iterator[Item]:
        if "IndexName" in request:
            return items
        is_consistent = bool(request.get("ConsistentRead"))
        return visible_items(items, table, self._choose, self._now_ms(), is_consistent)

    def _page(
        self, page: Page, charged: Charged, request: Mapping[str, Any], operation: str
    ) -> dict[str, Any]:
        is_consistent = bool(request.get("ConsistentRead"))
        self._charge_reads(read_units(charged, page.read, is_consistent), operation)
        items = list(project(request, page.kept))
        response = {"Items": items, "Count": len(items), "ScannedCount": len(page.read)}
        if request.get("Select") == "COUNT":
            del response["Items"]
        return (
            response if page.last_key is None else {**response, "LastEvaluatedKey": page.last_key}
        )

    def _follow(self, table: Table) -> None:
        for index in table.indexes.values():
            index.follow(self._now_ms(), self._choose)

    def _table(self, name: str, operation: str) -> Table:
        table = self._service.table(name, operation)
        table.expire(self._now_ms())
        return table

    def _now_ms(self) -> int:
        return self._requests.calls.now_ms()

    def _choose(self, probability: float) -> bool:
        return self._requests.calls.choose(probability)


def _one(item: Item | None) -> list[Item]:
    return [] if item is None else [item]


def target_of(key: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the first texts and numbers of a key for the description of a call."""
    values = [str(content)[:60] for value in key.values() for content in value.values()]
    return "/".join(values[:2])
