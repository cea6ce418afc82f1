"""The query tracker's DynamoDB table as items: kept, changed, found.

Writes that meet others of the same items are tried again; RefusedError says that a condition did
not hold.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sleeper.aws.dynamo_batches import Item, delete_items, get_items, query_pages
from sleeper.aws.errors import RefusedError, translated
from sleeper.errors import ConflictError, NotFoundError, UnavailableError
from sleeper.jobs.query_tracker import WHOLE_QUERY
from sleeper.properties.dynamo_tables import RECENT
from sleeper.retries import Backoff, retry

LISTING = "query"
TRANSACTION_ITEMS = 100
_WHAT = "query tracker"
_WRITE_ID = "writeId"
_BACKOFF = Backoff(retries=39, seconds_first=0.02, seconds_max=1.0)


class QueryItems:
    """The table, whose items are keyed by `queryId` and `subQueryId`. Safe for threads."""

    def __init__(self, client: Any, table_name: str) -> None:
        self._client = client
        self._table_name = table_name

    def put_new(self, item: Item) -> None:
        """Adds the item. RefusedError if it is there."""
        with translated(_WHAT):
            self._client.put_item(**self._new(item))

    def put_missing(self, items: Sequence[Item]) -> None:
        """Adds those that are not there, all or none; TRANSACTION_ITEMS at most."""
        missing = list(items)
        while missing:
            try:
                if len(missing) == 1:
                    self.put_new(missing[0])
                else:
                    self.write_together([{"Put": self._new(item)} for item in missing])
                return
            except RefusedError as error:
                missing = [item for i, item in enumerate(missing) if i not in error.items]

    def write_together(self, writes: Sequence[Item]) -> None:
        """All or none. Again while other subqueries of the query are being counted."""
        self._until_alone(lambda: self._client.transact_write_items(TransactItems=list(writes)))

    def update(self, change: Item) -> Item:
        """Makes a change that only sets attributes, and returns the item after it.

        boto3 repeats a request whose response was lost, and the change then refuses its own
        repetition. So each update leaves a fresh write id in the item, by which it is known.
        """
        update, write_id = change["Update"], {"S": uuid.uuid4().hex}
        update = {
            **update,
            "UpdateExpression": f"{update['UpdateExpression']}, {_WRITE_ID} = :writeId",
            "ExpressionAttributeValues": {
                **update["ExpressionAttributeValues"],
                ":writeId": write_id,
            },
            "ReturnValues": "ALL_NEW",
        }
        try:
            answer = self._until_alone(lambda: self._client.update_item(**update))
        except RefusedError:
            found = self._read(update["Key"])
            if found is None or found.get(_WRITE_ID) != write_id:
                raise
            return found
        return dict(answer["Attributes"])

    def change(
        self,
        query_id: str,
        sub_query_id: str,
        expression: str,
        condition: str,
        values: Item,
        names: dict[str, str] | None = None,
    ) -> Item:
        """A change of one item, for `update` or `write_together`."""
        update: Item = {
            "TableName": self._table_name,
            "Key": key_of(query_id, sub_query_id),
            "UpdateExpression": expression,
            "ConditionExpression": condition,
            "ExpressionAttributeValues": values,
        }
        if names:
            update["ExpressionAttributeNames"] = names
        return {"Update": update}

    def get(self, query_id: str, sub_query_id: str = WHOLE_QUERY) -> Item:
        """The item as it is now, or NotFoundError."""
        found = self._read(key_of(query_id, sub_query_id))
        if found is None:
            raise NotFoundError(f"no query {query_id!r} is known")
        return found

    def get_all(self, keys: Sequence[Item], attributes: str) -> list[Item]:
        """These attributes of the items that are there, in any order."""
        with translated(_WHAT):
            return get_items(self._client, self._table_name, keys, attributes)

    def of(self, query_id: str) -> list[Item]:
        """The query's item and those of its subqueries."""
        query = {
            "TableName": self._table_name,
            "KeyConditionExpression": "queryId = :query",
            "ExpressionAttributeValues": {":query": {"S": query_id}},
            "ConsistentRead": True,
        }
        with translated(_WHAT):
            return [item for page in query_pages(self._client, query) for item in page]

    def newest(self, before_ms: int | None = None) -> Iterator[Item]:
        """Keys of queries, newest first."""
        condition, names = "#listing = :listing", {"#listing": "listing"}
        values: Item = {":listing": {"S": LISTING}}
        if before_ms is not None:
            condition += " AND #at < :before"
            values[":before"] = {"N": str(before_ms)}
            names["#at"] = "at"
        query = {
            "TableName": self._table_name,
            "IndexName": RECENT.name,
            "ScanIndexForward": False,
            "KeyConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
        }
        with translated(_WHAT):
            for page in query_pages(self._client, query):
                for item in page:
                    yield {name: item[name] for name in ("queryId", "subQueryId")}

    def delete(self, query_id: str) -> None:
        """Deletes the query's item and those of its subqueries."""
        keys = [
            {name: item[name] for name in ("queryId", "subQueryId")} for item in self.of(query_id)
        ]
        with translated(_WHAT):
            delete_items(self._client, self._table_name, keys)

    def _read(self, key: Item) -> Item | None:
        with translated(_WHAT):
            answer = self._client.get_item(TableName=self._table_name, Key=key, ConsistentRead=True)
        found: Item | None = answer.get("Item")
        return found

    def _new(self, item: Item) -> Item:
        return {
            "TableName": self._table_name,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(queryId)",
        }

    def _until_alone(self, write: Callable[[], Any]) -> Any:
        def attempt() -> Any:
            with translated(_WHAT):
                return write()

        try:
            return retry(attempt, on=ConflictError, unless=RefusedError, backoff=_BACKOFF)
        except RefusedError:
            raise
        except ConflictError as error:
            raise UnavailableError(f"{_WHAT}: other writers always changed the items") from error


def key_of(query_id: str, sub_query_id: str) -> Item:
    """The key of an item."""
    return {"queryId": {"S": query_id}, "subQueryId": {"S": sub_query_id}}
