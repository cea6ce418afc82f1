"""The client of a simulated DynamoDB, with the methods of boto3's that Sleeper uses.

Each method checks its request, then sends it through the calls of the world. A batch may be carried
out in part. boto3 gives each transaction without a token one of its own, so its own repetition of a
transaction does nothing.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from simulation.services.dynamodb.capacity import Charged, throttled, write_units
from simulation.services.dynamodb.reads import PARTIAL, ReadingClient, target_of
from simulation.services.dynamodb.requests import (
    ConditionFailedError,
    Write,
    condition_failed,
    open_write,
)
from simulation.services.dynamodb.service import DynamoService
from simulation.services.dynamodb.transactions import cancelled, evaluate
from simulation.services.dynamodb.values import Item, invalid
from simulation.services.requests import Exceptions, Requests, client_error

_WRITES_PER_BATCH = 25


class DynamoClient(ReadingClient):
    """A client. The clients of one service share its tables."""

    def __init__(self, service: DynamoService, requests: Requests) -> None:
        super().__init__(service, requests)
        self.exceptions = Exceptions()

    # Items

    def put_item(self, **request: Any) -> dict[str, Any]:
        """Puts an item if the condition holds."""
        return self._write("put_item", "Put", request)

    def update_item(self, **request: Any) -> dict[str, Any]:
        """Updates an item, or creates it, if the condition holds."""
        return self._write("update_item", "Update", request)

    def delete_item(self, **request: Any) -> dict[str, Any]:
        """Deletes an item, if it exists, if the condition holds."""
        return self._write("delete_item", "Delete", request)

    def batch_write_item(self, **request: Any) -> dict[str, Any]:
        """Puts and deletes items without conditions."""
        wanted = [
            (name, each) for name, requests in request["RequestItems"].items() for each in requests
        ]
        if not 0 < len(wanted) <= _WRITES_PER_BATCH:
            raise invalid("Too many items requested for the BatchWriteItem call")

        def effect() -> dict[str, Any]:
            writes = [self._batch_write(name, each) for name, each in wanted]
            if len({(w.table.name, w.identity) for w in writes}) < len(writes):
                raise invalid("Provided list of item keys contains duplicates")
            unprocessed: dict[str, list[Any]] = {}
            for position, (write, (name, each)) in enumerate(zip(writes, wanted, strict=True)):
                is_refused = position and self._choose(PARTIAL)
                if is_refused or not self._apply_unconditionally(write):
                    unprocessed.setdefault(name, []).append(each)
            if sum(map(len, unprocessed.values())) == len(wanted):
                raise throttled("BatchWriteItem")
            return {"UnprocessedItems": unprocessed}

        return self._send("batch_write_item", next(iter(request["RequestItems"])), effect)

    # Transactions

    def transact_write_items(self, **request: Any) -> dict[str, Any]:
        """Applies all writes or none."""
        token = request.get("ClientRequestToken")
        if token is None:
            token = self._service.tokens.make()
        parts = request["TransactItems"]
        written: list[Write] = []

        def effect() -> dict[str, Any]:
            now_ms = self._now_ms()
            if self._service.tokens.is_repeated(token, parts, now_ms):
                return {}
            writes = [self._part(part) for part in parts]
            results = evaluate(writes, self._choose)
            self._charge_transaction(writes, results)
            for write, result in zip(writes, results, strict=True):
                if write.kind != "ConditionCheck":
                    write.table.mark_unsettled(write.identity)
                    write.table.write(write.identity, result, now_ms)
            written.extend(writes)
            self._service.tokens.keep(token, parts, now_ms)
            return {}

        first = next(iter(parts[0].values()))
        target = target_of(first.get("Key") or first.get("Item", {}))
        with self._settling(written):
            return self._send("transact_write_items", first["TableName"], effect, target)

    # What the methods share

    def _write(self, operation: str, kind: str, request: Mapping[str, Any]) -> dict[str, Any]:
        name = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem"}[kind]

        def effect() -> dict[str, Any]:
            write = open_write(self._table(request["TableName"], name), kind, request)
            before = write.table.get(write.identity)
            if write.table.is_unsettled(write.identity, self._choose):
                message = "Transaction is ongoing for the item"
                raise client_error("TransactionConflictException", message, name)
            try:
                after = write.result(before)
            except ConditionFailedError as error:
                raise condition_failed(name, error.item, request) from None
            self._charge_writes(write_units(write.table, before, after), name)
            write.table.write(write.identity, after, self._now_ms())
            return _returned(request, before, after)

        target = target_of(request.get("Key") or request.get("Item", {}))
        return self._send(operation, request["TableName"], effect, target)

    def _part(self, part: Mapping[str, Any]) -> Write:
        ((kind, request),) = part.items()
        return open_write(self._table(request["TableName"], "TransactWriteItems"), kind, request)

    def _batch_write(self, name: str, request: Mapping[str, Any]) -> Write:
        table = self._table(name, "BatchWriteItem")
        if "PutRequest" in request:
            return open_write(table, "Put", request["PutRequest"])
        return open_write(table, "Delete", request["DeleteRequest"])

    def _apply_unconditionally(self, write: Write) -> bool:
        """Returns False if there is no capacity for the write."""
        before = write.table.get(write.identity)
        after = write.result(before)
        now_ms = self._now_ms()
        if not self._service.capacity.use_writes(write_units(write.table, before, after), now_ms):
            return False
        write.table.write(write.identity, after, now_ms)
        return True

    def _charge_transaction(self, writes: Sequence[Write], results: Sequence[Item | None]) -> None:
        units: Counter[Charged] = Counter()
        for write, result in zip(writes, results, strict=True):
            units.update(write_units(write.table, write.table.get(write.identity), result, 2))
        if not self._service.capacity.use_writes(units, self._now_ms()):
            reason = {
                "Code": "ThrottlingError",
                "Message": "Throughput exceeds the current capacity",
            }
            raise cancelled([reason for _ in writes])

    def _charge_writes(self, units: Counter[Charged], operation: str) -> None:
        if not self._service.capacity.use_writes(units, self._now_ms()):
            raise throttled(operation)

    @contextmanager
    def _settling(self, writes: Sequence[Write]) -> Iterator[None]:
        """Ends the transaction of the writes that the block adds."""
        try:
            yield
        finally:
            for write in writes:
                write.table.settle(write.identity)


def _returned(
    request: Mapping[str, Any], before: Item | None, after: Item | None
) -> dict[str, Any]:
    kind = request.get("ReturnValues", "NONE")
    item = {"ALL_OLD": before, "ALL_NEW": after}.get(kind)
    if kind not in {"NONE", "ALL_OLD", "ALL_NEW"}:
        raise NotImplementedError(f"ReturnValues {kind}")
    return {} if item is None else {"Attributes": dict(item)}
