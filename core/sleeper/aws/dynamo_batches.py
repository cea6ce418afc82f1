"""Requests to DynamoDB that may take several to be whole: pages, batches, transactions."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sleeper.aws.backoff import attempts
from sleeper.aws.errors import ThrottledError, translated
from sleeper.errors import UnavailableError

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
        waiting: Any = {table_name: [{"DeleteRequest": {"Key": key}} for key in batch]}
        for _ in attempts():
            waiting = client.batch_write_item(RequestItems=waiting).get("UnprocessedItems")
            if not waiting:
                break
        else:
            raise UnavailableError(f"{table_name}: items were not deleted: throttled")


def get_items(client: Any, table_name: str, keys: Sequence[Item], names: str) -> list[Item]:
    """These attributes of the items that are there, in any order. Keys may not repeat."""
    found: list[Item] = []
    for batch in _slices(keys, _READS_PER_BATCH):
        wanted = {"Keys": list(batch), "ProjectionExpression": names, "ConsistentRead": True}
        waiting: Any = {table_name: wanted}
        for _ in attempts():
            answer = client.batch_get_item(RequestItems=waiting)
            found += answer["Responses"].get(table_name, [])
            waiting = answer.get("UnprocessedKeys")
            if not waiting:
                break
        else:
            raise UnavailableError(f"{table_name}: items were not read: throttled")
    return found


def write_together(client: Any, what: str, writes: Sequence[Item], **more: Any) -> None:
    """Makes the writes in one transaction, which is sent again while DynamoDB has no room for it.

    Errors are those of `translated`, which name `what`.
    """
    throttled: ThrottledError | None = None
    for _ in attempts():
        try:
            with translated(what):
                client.transact_write_items(TransactItems=writes, **more)
            return
        except ThrottledError as error:
            throttled = error
    assert throttled is not None
    raise throttled


def _slices(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
