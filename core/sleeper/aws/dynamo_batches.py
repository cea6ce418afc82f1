"""Requests to DynamoDB that may take several to be whole: pages, batches, transactions."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sleeper.aws.clients import partial_request_backoff
from sleeper.aws.errors import ThrottledError, translated
from sleeper.retries import retry

_WRITES_PER_BATCH = 25
_READS_PER_BATCH = 100

Item = dict[str, Any]


def query_pages(client: Any, query: Item) -> Iterator[list[Item]]:
    """The pages of a query, as far as they are wanted."""
    return _pages(client.query, query)


def scan_pages(client: Any, scan: Item) -> Iterator[list[Item]]:
    """The pages of a scan, as far as they are wanted."""
    return _pages(client.scan, scan)


def _pages(ask: Callable[..., Item], request: Item) -> Iterator[list[Item]]:
    start: Item = {}
    while True:
        answer = ask(**request, **start)
        yield answer["Items"]
        last = answer.get("LastEvaluatedKey")
        if not last:
            return
        start = {"ExclusiveStartKey": last}


def delete_items(client: Any, table_name: str, keys: Sequence[Item]) -> None:
    """Deletes items; those that are gone already are no error. May be done in part."""
    for batch in _slices(keys, _WRITES_PER_BATCH):
        _delete_batch(client, table_name, batch)


def _delete_batch(client: Any, table_name: str, keys: Sequence[Item]) -> None:
    waiting: Any = {table_name: [{"DeleteRequest": {"Key": key}} for key in keys]}

    def attempt() -> None:
        nonlocal waiting
        waiting = client.batch_write_item(RequestItems=waiting).get("UnprocessedItems")
        if waiting:
            raise ThrottledError(f"{table_name}: items were not deleted: throttled")

    retry(attempt, on=ThrottledError, backoff=partial_request_backoff())


def get_items(client: Any, table_name: str, keys: Sequence[Item], names: str) -> list[Item]:
    """Returns these attributes of the items that exist, in any order. Keys may not repeat."""
    return [
        item
        for batch in _slices(keys, _READS_PER_BATCH)
        for item in _get_batch(client, table_name, batch, names)
    ]


def _get_batch(client: Any, table_name: str, keys: Sequence[Item], names: str) -> list[Item]:
    found: list[Item] = []
    waiting: Any = {
        table_name: {"Keys": list(keys), "ProjectionExpression": names, "ConsistentRead": True}
    }

    def attempt() -> None:
        nonlocal waiting
        answer = client.batch_get_item(RequestItems=waiting)
        found.extend(answer["Responses"].get(table_name, []))
        waiting = answer.get("UnprocessedKeys")
        if waiting:
            raise ThrottledError(f"{table_name}: items were not read: throttled")

    retry(attempt, on=ThrottledError, backoff=partial_request_backoff())
    return found


def write_together(client: Any, what: str, writes: Sequence[Item], **more: Any) -> None:
    """Makes the writes in one transaction, which is sent again while DynamoDB has no room for it.

    Errors are those of `translated`, which name `what`.
    """

    def attempt() -> None:
        with translated(what):
            client.transact_write_items(TransactItems=writes, **more)

    retry(attempt, on=ThrottledError, backoff=partial_request_backoff())


def _slices(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
