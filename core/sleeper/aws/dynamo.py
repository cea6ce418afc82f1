"""Access to DynamoDB tables with Python values.

An item is a dict of `str`, `int`, `bytes` and lists of these by attribute name; an attribute
that is None is left out. In an expression, `#name` is the attribute `name` and `:name` the
value `name`: `items.put(item, "#at < :at", {"at": 5})`. Reads are consistent, except those of
an index. A *write* is one part of a transaction, built by `put_write`, `update_write` or
`delete_write`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from sleeper.aws.clients import partial_request_backoff
from sleeper.aws.errors import RefusedError, ThrottledError, translate_errors
from sleeper.errors import ConflictError, UnavailableError
from sleeper.retries import Backoff, retry

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TRANSACTION_WRITES_MAX = 100
_WRITES_PER_BATCH = 25
_READS_PER_BATCH = 100
_CONFLICT_BACKOFF = Backoff(retries=39, seconds_first=0.02, seconds_max=1.0)

Item = dict[str, Any]
Write = dict[str, Any]
Put = tuple[Item, str, Item]
"""An item, the condition of its put, and the condition's values."""
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class DynamoItems:
    """The items of one DynamoDB table. Safe for threads.

    Errors name `label`; a failed condition is RefusedError.
    """

    client: "DynamoDBClient"
    table_name: str
    label: str

    def get(self, key: Item) -> Item | None:
        """Returns the item, or None."""
        with translate_errors(self.label):
            response = self.client.get_item(
                TableName=self.table_name, Key=_marshal(key), ConsistentRead=True
            )
        return _unmarshal(response["Item"]) if "Item" in response else None

    def get_all(self, keys: Sequence[Item], attributes: Sequence[str]) -> list[Item]:
        """Returns these attributes of existing items, in any order. Keys may not repeat."""
        return [
            item
            for batch in _slices(keys, _READS_PER_BATCH)
            for item in self._get_batch(batch, attributes)
        ]

    def _get_batch(self, keys: Sequence[Item], attributes: Sequence[str]) -> list[Item]:
        items: list[Item] = []
        projection = _expressions({}, ProjectionExpression=", ".join(f"#{a}" for a in attributes))
        request = {"Keys": [_marshal(k) for k in keys], "ConsistentRead": True, **projection}
        unprocessed: Any = {self.table_name: request}

        def attempt() -> None:
            nonlocal unprocessed
            with translate_errors(self.label):
                response = self.client.batch_get_item(RequestItems=unprocessed)
            items.extend(map(_unmarshal, response["Responses"].get(self.table_name, [])))
            unprocessed = response.get("UnprocessedKeys")
            if unprocessed:
                raise ThrottledError(f"{self.label}: items were not read: throttled")

        retry(attempt, on=ThrottledError, backoff=partial_request_backoff())
        return items

    def put(self, item: Item, condition: str | None = None, values: Item | None = None) -> None:
        """Puts the item if the condition holds."""
        with translate_errors(self.label):
            self.client.put_item(**self.put_write(item, condition, values)["Put"])

    def put_all(self, puts: Sequence[Put]) -> None:
        """Puts the items whose condition holds; a hundred become durable at a time."""
        for start in range(0, len(puts), TRANSACTION_WRITES_MAX):
            waiting = list(puts[start : start + TRANSACTION_WRITES_MAX])
            while waiting:
                try:
                    self._put_together(waiting)
                    break
                except RefusedError as error:
                    waiting = [put for i, put in enumerate(waiting) if i not in error.items]

    def _put_together(self, puts: Sequence[Put]) -> None:
        if len(puts) == 1:
            self.retry_conflicts(lambda: self.put(*puts[0]))
        else:
            writes = [self.put_write(*put) for put in puts]
            self.retry_conflicts(lambda: self.transact(writes))

    def update(
        self,
        key: Item,
        change: str,
        condition: str | None = None,
        values: Item | None = None,
    ) -> Item:
        """Changes the item by an update expression; returns it as it is after that."""
        request = self.update_write(key, change, condition, values)["Update"]
        with translate_errors(self.label):
            response = self.client.update_item(**request, ReturnValues="ALL_NEW")
        return _unmarshal(response["Attributes"])

    def delete(self, keys: Sequence[Item]) -> None:
        """Deletes items; missing ones are no error. An error may leave some of them."""
        for batch in _slices(keys, _WRITES_PER_BATCH):
            self._delete_batch(batch)

    def _delete_batch(self, keys: Sequence[Item]) -> None:
        requests = [{"DeleteRequest": {"Key": _marshal(key)}} for key in keys]
        unprocessed: Any = {self.table_name: requests}

        def attempt() -> None:
            nonlocal unprocessed
            with translate_errors(self.label):
                response = self.client.batch_write_item(RequestItems=unprocessed)
            unprocessed = response.get("UnprocessedItems")
            if unprocessed:
                raise ThrottledError(f"{self.label}: items were not deleted: throttled")

        retry(attempt, on=ThrottledError, backoff=partial_request_backoff())

    def query(
        self,
        condition: str,
        values: Item,
        index: str | None = None,
        newest_first: bool = False,
        page_size: int | None = None,
    ) -> Iterator[Item]:
        """Yields items under a key condition in key order; reads pages on demand."""
        return chain.from_iterable(
            self.query_pages(condition, values, index, newest_first, page_size)
        )

    def query_pages(
        self,
        condition: str,
        values: Item,
        index: str | None = None,
        newest_first: bool = False,
        page_size: int | None = None,
    ) -> Iterator[list[Item]]:
        """Yields the pages of `query`."""
        expressions = _expressions(values, KeyConditionExpression=condition)
        request = {**expressions, "ScanIndexForward": not newest_first}
        yield from self._pages("query", request, index, page_size)

    def scan(self, index: str | None = None, attribute: str | None = None) -> Iterator[Item]:
        """Yields all items, or their given attribute, in any order."""
        request = _expressions({}, ProjectionExpression=attribute and f"#{attribute}")
        return chain.from_iterable(self._pages("scan", request, index))

    def _pages(
        self, operation: Any, request: Item, index: str | None, page_size: int | None = None
    ) -> Iterator[list[Item]]:
        # An index has no consistent reads.
        source = {"IndexName": index} if index else {"ConsistentRead": True}
        config = {"PageSize": page_size} if page_size else {}
        pages = self.client.get_paginator(operation).paginate(
            TableName=self.table_name, PaginationConfig=config, **source, **request
        )
        with translate_errors(self.label):
            for page in pages:
                yield [_unmarshal(item) for item in page["Items"]]

    def transact(self, writes: Sequence[Write], token: str | None = None) -> None:
        """Applies all writes or none, and repeats a throttled transaction.

        The writes may be of several tables. DynamoDB applies a `token` once in ten minutes.
        """
        retry(
            lambda: self.transact_once(writes, token),
            on=ThrottledError,
            backoff=partial_request_backoff(),
        )

    def transact_once(self, writes: Sequence[Write], token: str | None = None) -> None:
        """Applies all writes or none. ThrottledError if DynamoDB has no capacity."""
        options: Any = {} if token is None else {"ClientRequestToken": token}
        with translate_errors(self.label):
            self.client.transact_write_items(TransactItems=writes, **options)  # type: ignore[arg-type]

    def retry_conflicts(self, write: Callable[[], R]) -> R:
        """Repeats a write that conflicts with a transaction in progress on the same items."""
        try:
            return retry(write, on=ConflictError, unless=RefusedError, backoff=_CONFLICT_BACKOFF)
        except RefusedError:
            raise
        except ConflictError as error:
            raise UnavailableError(
                f"{self.label}: gave up after repeated conflicts with other writers"
            ) from error

    def put_write(
        self, item: Item, condition: str | None = None, values: Item | None = None
    ) -> Write:
        """Returns a write that puts the item if the condition holds."""
        expressions = _expressions(values or {}, ConditionExpression=condition)
        return {"Put": {"TableName": self.table_name, "Item": _marshal(item), **expressions}}

    def update_write(
        self, key: Item, change: str, condition: str | None = None, values: Item | None = None
    ) -> Write:
        """Returns a write that changes the item by an update expression."""
        expressions = _expressions(
            values or {}, UpdateExpression=change, ConditionExpression=condition
        )
        return {"Update": {"TableName": self.table_name, "Key": _marshal(key), **expressions}}

    def delete_write(self, key: Item, condition: str, values: Item) -> Write:
        """Returns a write that deletes the item if the condition holds."""
        expressions = _expressions(values, ConditionExpression=condition)
        return {"Delete": {"TableName": self.table_name, "Key": _marshal(key), **expressions}}


def _expressions(values: Item, **expressions: str | None) -> Item:
    """Returns the expressions with the names and values that they refer to."""
    request: Item = {kind: text for kind, text in expressions.items() if text}
    names = {f"#{n}": n for text in request.values() for n in re.findall(r"#(\w+)", text)}
    if names:
        request["ExpressionAttributeNames"] = names
    if values:
        request["ExpressionAttributeValues"] = {f":{n}": v for n, v in _marshal(values).items()}
    return request


class _Deserializer(TypeDeserializer):  # type: ignore[misc]
    """Returns integers as `int` and binary values as `bytes`."""

    def _deserialize_n(self, value: str) -> Any:
        number = super()._deserialize_n(value)
        return int(number) if number == number.to_integral_value() else number

    def _deserialize_b(self, value: bytes) -> bytes:
        return value


class _Serializer(TypeSerializer):  # type: ignore[misc]
    """Takes a third of the time for texts and integers, which most values are."""

    def serialize(self, value: Any) -> dict[str, Any]:
        if type(value) is str:
            return {"S": value}
        if type(value) is int:
            return {"N": str(value)}
        result: dict[str, Any] = super().serialize(value)
        return result


_SERIALIZER = _Serializer()
_DESERIALIZER = _Deserializer()


def _marshal(item: Item) -> dict[str, Any]:
    return {n: _SERIALIZER.serialize(v) for n, v in item.items() if v is not None}


def _unmarshal(item: Mapping[str, Any]) -> Item:
    return {name: _DESERIALIZER.deserialize(value) for name, value in item.items()}


def _slices(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
