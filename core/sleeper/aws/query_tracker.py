"""The query tracker on DynamoDB (FORMATS: Query results, the tracker table).

A query and each of its subqueries is an item; the query's counts the others: subqueries that
there are, that are finished, that failed, and their rows. A subquery ends in one transaction
with that count, so nothing is counted twice and nobody reads every subquery. What clients do
not know (`fingerprint`, `version`, …) stands beside what they read.
"""

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

from sleeper.aws.dynamo_batches import Item, delete_items, get_items, query_pages
from sleeper.aws.dynamo_tables import RECENT, TIME_TO_LIVE
from sleeper.aws.errors import RefusedError, translated
from sleeper.aws.query_items import (
    STATES,
    STATUS_NAMES,
    UNFINISHED,
    error_text,
    key_of,
    state_of,
    status_of,
    sub_id_of,
)
from sleeper.aws.tracker_items import number, text
from sleeper.clock import Clock, system_clock
from sleeper.errors import ConflictError, NotFoundError, UnavailableError
from sleeper.query_service.tracker import (
    WHOLE_QUERY,
    QueryIdTakenError,
    QueryPin,
    QueryState,
    QueryStatus,
    state_of_query,
    too_many_rows,
)

_WHAT = "query tracker"
_LISTING = "query"
_TRANSACTION_ITEMS = 100
# Of a subquery's end, which is its own item first.
_QUERY_ITEM = 1
_WRITERS = 8
_TRIES = 40
_WAIT_SECONDS = 0.02
_WAIT_SECONDS_MAX = 1.0


class DynamoQueryTracker:
    """Implements the ports of `sleeper.query_service.tracker`. Safe for threads.

    `days` is how long a query is kept.
    """

    def __init__(
        self, client: Any, table_name: str, days: int, clock: Clock = system_clock
    ) -> None:
        self._client = client
        self._table_name = table_name
        self._days = days
        self._clock = clock

    def begin(self, query_id: str, pin: QueryPin) -> QueryPin | None:
        """See the port."""
        item = {
            **self._item(query_id, WHOLE_QUERY, QueryState.QUEUED),
            **self._listed(),
            "fingerprint": {"S": pin.fingerprint},
            "tableId": {"S": pin.table_id},
            "version": {"N": str(pin.version)},
            "queryTime": {"N": str(pin.now_ms)},
        }
        try:
            self._put_new(item)
            return pin
        except RefusedError:
            found = self._get(query_id, WHOLE_QUERY)
        if text(found, "fingerprint") != pin.fingerprint:
            raise QueryIdTakenError(query_id)
        if state_of(found).is_finished:
            return None
        version, now_ms = int(found["version"]["N"]), int(found["queryTime"]["N"])
        return QueryPin(pin.fingerprint, found["tableId"]["S"], version, now_ms)

    def plan(self, query_id: str, sub_query_ids: Sequence[str]) -> None:
        """See the port. A hundred subqueries at a time, some hundreds beside each other."""
        items = [self._item(query_id, each, QueryState.QUEUED) for each in sub_query_ids]
        slices = [
            items[start : start + _TRANSACTION_ITEMS]
            for start in range(0, len(items), _TRANSACTION_ITEMS)
        ]
        if len(slices) == 1:
            self._put_missing(slices[0])
        elif slices:
            with ThreadPoolExecutor(_WRITERS) as writers:
                list(writers.map(self._put_missing, slices))
        state = QueryState.IN_PROGRESS if items else QueryState.COMPLETED
        try:
            self._update(
                query_id,
                WHOLE_QUERY,
                "SET lastKnownState = :state, subQueries = :count, lastUpdateTime = :now",
                UNFINISHED,
                {":state": {"S": state.value}, ":count": {"N": str(len(items))}, **STATES},
            )
        except RefusedError:
            return

    def start(self, query_id: str, sub_query_id: str) -> bool:
        """See the port."""
        try:
            self._update(
                query_id,
                sub_query_id,
                "SET lastKnownState = :running, lastUpdateTime = :now, expiryDate = :expiry,"
                " rowCount = if_not_exists(rowCount, :none)",
                f"attribute_not_exists(queryId) OR {UNFINISHED}",
                {":none": {"N": "0"}, ":expiry": self._expiry(), **STATES},
            )
        except RefusedError:
            return False
        return True

    def finish(
        self,
        query_id: str,
        sub_query_id: str,
        rows: int,
        error: str | None = None,
        rows_max: int = 0,
    ) -> QueryStatus | None:
        """See the port."""
        state = QueryState.COMPLETED if error is None else QueryState.FAILED
        room = rows_max - rows if rows_max and error is None else None
        try:
            self._transact(
                [
                    self._ended_subquery(query_id, sub_query_id, state, rows, error),
                    self._counted(query_id, rows, error, room),
                ]
            )
        except RefusedError as refused:
            # It was finished before, or the query is forgotten, or has too many rows.
            if room is not None and _QUERY_ITEM in refused.items:
                return self.finish(query_id, sub_query_id, 0, too_many_rows(rows_max))
        return self._end(query_id)

    def fail(self, query_id: str, fingerprint: str, error: str) -> QueryStatus | None:
        """See the port."""
        values = {
            ":failed": {"S": QueryState.FAILED.value},
            ":error": error_text(error),
            ":fingerprint": {"S": fingerprint},
            ":expiry": self._expiry(),
            ":none": {"N": "0"},
            ":listing": {"S": _LISTING},
            ":at": {"N": str(self._clock())},
            **STATES,
        }
        try:
            found = self._update(
                query_id,
                WHOLE_QUERY,
                "SET lastKnownState = :failed, #errors = :error, lastUpdateTime = :now,"
                " fingerprint = :fingerprint, expiryDate = :expiry, listing = :listing,"
                " #at = if_not_exists(#at, :at), rowCount = if_not_exists(rowCount, :none)",
                f"attribute_not_exists(queryId) OR (fingerprint = :fingerprint AND {UNFINISHED})",
                values,
                {"#errors": "errors", "#at": "at"},
            )
        except RefusedError:
            if text(self._get(query_id, WHOLE_QUERY), "fingerprint") != fingerprint:
                raise QueryIdTakenError(query_id) from None
            return None
        return status_of(found)

    def query(self, query_id: str) -> QueryStatus:
        """See the port."""
        return status_of(self._get(query_id, WHOLE_QUERY))

    def subqueries(self, query_id: str) -> tuple[QueryStatus, ...]:
        """See the port."""
        return tuple(status_of(i) for i in self._items(query_id) if sub_id_of(i) != WHOLE_QUERY)

    def recent(self, limit: int = 100) -> tuple[QueryStatus, ...]:
        """See the port."""
        keys = list(islice(self._listing(), limit))
        with translated(_WHAT):
            found = get_items(self._client, self._table_name, keys, STATUS_NAMES)
        by_id = {item["queryId"]["S"]: status_of(item) for item in found}
        # One may have expired since the index was read.
        return tuple(by_id[i] for i in (key["queryId"]["S"] for key in keys) if i in by_id)

    def remove_before(self, time_ms: int) -> int:
        """See the port. Without it they expire by themselves."""
        old = [key["queryId"]["S"] for key in self._listing(before_ms=time_ms)]
        for query_id in old:
            keys = [
                {name: item[name] for name in ("queryId", "subQueryId")}
                for item in self._items(query_id)
            ]
            with translated(_WHAT):
                delete_items(self._client, self._table_name, keys)
        return len(old)

    def _end(self, query_id: str) -> QueryStatus | None:
        """Ends the query if its subqueries are all finished and it is not."""
        try:
            found = self._get(query_id, WHOLE_QUERY)
        except NotFoundError:
            return None
        planned = number(found, "subQueries")
        if planned is None or state_of(found).is_finished:
            return None
        counts = (number(found, name) or 0 for name in ("finishedSubQueries", "failedSubQueries"))
        state = state_of_query(planned, *counts)
        if not state.is_finished:
            return None
        try:
            return status_of(
                self._update(
                    query_id,
                    WHOLE_QUERY,
                    "SET lastKnownState = :state, lastUpdateTime = :now",
                    UNFINISHED,
                    {":state": {"S": state.value}, **STATES},
                )
            )
        except RefusedError:
            return None

    def _ended_subquery(
        self, query_id: str, sub_query_id: str, state: QueryState, rows: int, error: str | None
    ) -> Item:
        errors = {} if error is None else {":error": error_text(error)}
        return self._request(
            query_id,
            sub_query_id,
            "SET lastKnownState = :state, rowCount = :rows, lastUpdateTime = :now,"
            " expiryDate = :expiry" + (", #errors = :error" if errors else ""),
            f"attribute_not_exists(queryId) OR {UNFINISHED}",
            {
                ":state": {"S": state.value},
                ":rows": {"N": str(rows)},
                ":expiry": self._expiry(),
                **errors,
                **STATES,
            },
            {"#errors": "errors"} if errors else {},
        )

    def _counted(self, query_id: str, rows: int, error: str | None, room: int | None) -> Item:
        """`room`: how many rows the query may have before these; None is any number."""
        failed = error is not None
        fits = "" if room is None else " AND rowCount <= :room"
        kept = ", #errors = if_not_exists(#errors, :error)" if failed else ""
        return self._request(
            query_id,
            WHOLE_QUERY,
            f"SET lastUpdateTime = :now{kept}"
            " ADD finishedSubQueries :one, failedSubQueries :failed, rowCount :rows",
            f"attribute_exists(queryId){fits}",
            {
                **({} if room is None else {":room": {"N": str(room)}}),
                ":one": {"N": "1"},
                ":failed": {"N": str(int(failed))},
                ":rows": {"N": str(rows)},
                **({} if error is None else {":error": error_text(error)}),
            },
            {"#errors": "errors"} if failed else {},
        )

    def _put_missing(self, items: list[Item]) -> None:
        """Adds items, all of those that are not there."""
        for _ in range(_TRIES):
            if not items:
                return
            try:
                if len(items) == 1:
                    self._put_new(items[0])
                else:
                    self._transact([{"Put": self._new(item)} for item in items])
                return
            except RefusedError as error:
                items = [item for i, item in enumerate(items) if i not in error.items]
        raise UnavailableError(f"{_WHAT}: others were always writing the same")

    def _put_new(self, item: Item) -> None:
        with translated(_WHAT):
            self._client.put_item(**self._new(item))

    def _new(self, item: Item) -> Item:
        return {
            "TableName": self._table_name,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(queryId)",
        }

    def _transact(self, writes: list[Item]) -> None:
        _written(lambda: self._client.transact_write_items(TransactItems=writes))

    def _update(
        self,
        query_id: str,
        sub_query_id: str,
        change: str,
        condition: str,
        values: Item,
        names: dict[str, str] | None = None,
    ) -> Item:
        """The item as it is then."""
        request = self._request(query_id, sub_query_id, change, condition, values, names)["Update"]
        answer = _written(lambda: self._client.update_item(**request, ReturnValues="ALL_NEW"))
        return dict(answer["Attributes"])

    def _request(
        self,
        query_id: str,
        sub_query_id: str,
        change: str,
        condition: str,
        values: Item,
        names: dict[str, str] | None = None,
    ) -> Item:
        request: Item = {
            "TableName": self._table_name,
            "Key": key_of(query_id, sub_query_id),
            "UpdateExpression": change,
            "ConditionExpression": condition,
            "ExpressionAttributeValues": {":now": self._now(), **values},
        }
        if names:
            request["ExpressionAttributeNames"] = names
        return {"Update": request}

    def _item(self, query_id: str, sub_query_id: str, state: QueryState) -> Item:
        return {
            **key_of(query_id, sub_query_id),
            "lastKnownState": {"S": state.value},
            "rowCount": {"N": "0"},
            "lastUpdateTime": self._now(),
            TIME_TO_LIVE: self._expiry(),
        }

    def _listed(self) -> Item:
        return {"listing": {"S": _LISTING}, "at": {"N": str(self._clock())}}

    def _now(self) -> Item:
        return {"N": str(self._clock() // 1000)}

    def _expiry(self) -> Item:
        return {"N": str(self._clock() // 1000 + self._days * 86_400)}

    def _get(self, query_id: str, sub_query_id: str) -> Item:
        with translated(_WHAT):
            answer = self._client.get_item(
                TableName=self._table_name, Key=key_of(query_id, sub_query_id), ConsistentRead=True
            )
        if "Item" not in answer:
            raise NotFoundError(f"no query {query_id!r} is known")
        return dict(answer["Item"])

    def _items(self, query_id: str) -> list[Item]:
        query = {
            "TableName": self._table_name,
            "KeyConditionExpression": "queryId = :query",
            "ExpressionAttributeValues": {":query": {"S": query_id}},
            "ConsistentRead": True,
        }
        with translated(_WHAT):
            return [item for page in query_pages(self._client, query) for item in page]

    def _listing(self, before_ms: int | None = None) -> Any:
        """Keys of queries, newest first."""
        condition, names = "#listing = :listing", {"#listing": "listing"}
        values: Item = {":listing": {"S": _LISTING}}
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


def _written(write: Callable[[], Any]) -> Any:
    """What DynamoDB answers. Again while other subqueries of the query are being counted."""
    for tries in range(_TRIES):
        try:
            with translated(_WHAT):
                return write()
        except RefusedError:
            raise
        except ConflictError:
            time.sleep(random.uniform(0, min(_WAIT_SECONDS * 2**tries, _WAIT_SECONDS_MAX)))
    raise UnavailableError(f"{_WHAT}: others were always writing the same")
