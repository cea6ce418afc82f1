"""The query tracker on DynamoDB (docs/formats.md, "Query tracker").

A query and each of its subqueries are items. The query's item counts planned, finished and failed
subqueries and their rows. One transaction ends a subquery and counts it, so nothing is counted
twice and no read covers all subqueries.
"""

import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from sleeper.aws.dynamo import TRANSACTION_WRITES_MAX, DynamoItems, Item, Put, Write
from sleeper.aws.errors import RefusedError
from sleeper.clock import Clock, system_clock
from sleeper.errors import NotFoundError
from sleeper.jobs.query_tracker import (
    ERROR_CHARACTERS_MAX,
    WHOLE_QUERY,
    QueryIdTakenError,
    QueryPin,
    QueryState,
    QueryStatus,
    derive_query_state,
    format_rows_error,
)
from sleeper.properties.deployed import RECENT, TIME_TO_LIVE

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_LISTING = "query"
_WRITERS = 8
# The position of the query's item in the transaction that ends a subquery.
_QUERY_WRITE = 1
_IS_NEW = "attribute_not_exists(#queryId)"
_IS_UNFINISHED = "#lastKnownState IN (:queued, :running)"
_STATES = {"queued": QueryState.QUEUED.value, "running": QueryState.IN_PROGRESS.value}
_STATUS = (
    "queryId",
    "subQueryId",
    "lastKnownState",
    "rowCount",
    "lastUpdateTime",
    "errors",
    "tableId",
)


class DynamoQueryTracker:
    """Implements the ports of `sleeper.jobs.query_tracker`. Safe for threads.

    Queries expire after `days`.
    """

    def __init__(
        self,
        client: "DynamoDBClient",
        table_name: str,
        days: int,
        clock: Clock = system_clock,
    ) -> None:
        self._items = DynamoItems(client, table_name, "query tracker")
        self._days = days
        self._clock = clock

    def begin(self, query_id: str, pin: QueryPin) -> QueryPin | None:
        """See the port."""
        item = {
            **self._new_item(query_id, WHOLE_QUERY),
            "listing": _LISTING,
            "at": self._clock(),
            "fingerprint": pin.fingerprint,
            "tableId": pin.table_id,
            "version": pin.version,
            "queryTime": pin.now_ms,
        }
        try:
            self._items.put(item, _IS_NEW)
            return pin
        except RefusedError:
            item = self._read(query_id)
        if item.get("fingerprint") != pin.fingerprint:
            raise QueryIdTakenError(query_id)
        if _state(item).is_finished:
            return None
        return QueryPin(pin.fingerprint, item["tableId"], item["version"], item["queryTime"])

    def plan(self, query_id: str, sub_query_ids: Sequence[str]) -> None:
        """See the port. It writes transactions of a hundred subqueries, some concurrently."""
        puts: list[Put] = [(self._new_item(query_id, i), _IS_NEW, {}) for i in sub_query_ids]
        slices = [
            puts[start : start + TRANSACTION_WRITES_MAX]
            for start in range(0, len(puts), TRANSACTION_WRITES_MAX)
        ]
        if len(slices) == 1:
            self._items.put_all(puts)
        elif slices:
            with ThreadPoolExecutor(_WRITERS) as writers:
                list(writers.map(self._items.put_all, slices))
        state = QueryState.IN_PROGRESS if puts else QueryState.COMPLETED
        with suppress(RefusedError):
            self._update(
                query_id,
                WHOLE_QUERY,
                "SET #lastKnownState = :state, #subQueries = :count, #lastUpdateTime = :now",
                _IS_UNFINISHED,
                {"state": state.value, "count": len(puts), **_STATES},
            )

    def start(self, query_id: str, sub_query_id: str) -> bool:
        """See the port."""
        try:
            self._update(
                query_id,
                sub_query_id,
                "SET #lastKnownState = :running, #lastUpdateTime = :now, #expiryDate = :expiry,"
                " #rowCount = if_not_exists(#rowCount, :none)",
                f"{_IS_NEW} OR {_IS_UNFINISHED}",
                {"none": 0, "expiry": self._expiry(), **_STATES},
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
        room = rows_max - rows if rows_max and error is None else None
        writes = [
            self._end_subquery(query_id, sub_query_id, rows, error),
            self._count_subquery(query_id, rows, error, room),
        ]
        try:
            self._items.retry_conflicts(lambda: self._items.transact(writes))
        except RefusedError as refused:
            # The subquery was finished before, or the query was removed or has too many rows.
            if room is not None and _QUERY_WRITE in refused.items:
                return self.finish(query_id, sub_query_id, 0, format_rows_error(rows_max))
        return self._end_query(query_id)

    def fail(self, query_id: str, fingerprint: str, error: str) -> QueryStatus | None:
        """See the port."""
        values = {
            "failed": QueryState.FAILED.value,
            "error": error[:ERROR_CHARACTERS_MAX],
            "fingerprint": fingerprint,
            "expiry": self._expiry(),
            "none": 0,
            "listing": _LISTING,
            "at": self._clock(),
            **_STATES,
        }
        try:
            item = self._update(
                query_id,
                WHOLE_QUERY,
                "SET #lastKnownState = :failed, #errors = :error, #lastUpdateTime = :now,"
                " #fingerprint = :fingerprint, #expiryDate = :expiry, #listing = :listing,"
                " #at = if_not_exists(#at, :at), #rowCount = if_not_exists(#rowCount, :none)",
                f"{_IS_NEW} OR (#fingerprint = :fingerprint AND {_IS_UNFINISHED})",
                values,
            )
        except RefusedError:
            if self._read(query_id).get("fingerprint") != fingerprint:
                raise QueryIdTakenError(query_id) from None
            return None
        return _status(item)

    def query(self, query_id: str) -> QueryStatus:
        """See the port."""
        return _status(self._read(query_id))

    def subqueries(self, query_id: str) -> tuple[QueryStatus, ...]:
        """See the port."""
        items = self._read_all(query_id)
        return tuple(_status(item) for item in items if item["subQueryId"] != WHOLE_QUERY)

    def recent(self, limit: int = 100) -> tuple[QueryStatus, ...]:
        """See the port."""
        keys = list(islice(self._newest(), limit))
        found = self._items.get_all(keys, _STATUS)
        by_id = {item["queryId"]: _status(item) for item in found}
        # A query may expire after the read of the index.
        return tuple(by_id[i] for i in (key["queryId"] for key in keys) if i in by_id)

    def remove_before(self, time_ms: int) -> int:
        """See the port. Queries also expire."""
        old = list(self._newest(before_ms=time_ms))
        for query in old:
            self._items.delete([_key(item) for item in self._read_all(query["queryId"])])
        return len(old)

    def _end_query(self, query_id: str) -> QueryStatus | None:
        """Ends the query if it is not finished and all its subqueries are."""
        item = self._items.get(_key_of(query_id, WHOLE_QUERY))
        if item is None or "subQueries" not in item or _state(item).is_finished:
            return None
        counts = (item.get(name, 0) for name in ("finishedSubQueries", "failedSubQueries"))
        state = derive_query_state(item["subQueries"], *counts)
        if not state.is_finished:
            return None
        try:
            ended = self._update(
                query_id,
                WHOLE_QUERY,
                "SET #lastKnownState = :state, #lastUpdateTime = :now",
                _IS_UNFINISHED,
                {"state": state.value, **_STATES},
            )
        except RefusedError:
            return None
        return _status(ended)

    def _end_subquery(
        self, query_id: str, sub_query_id: str, rows: int, error: str | None
    ) -> Write:
        state, change = QueryState.COMPLETED, ""
        if error is not None:
            state, change = QueryState.FAILED, ", #errors = :error"
        values = {
            "state": state.value,
            "rows": rows,
            "now": self._now(),
            "expiry": self._expiry(),
            "error": error and error[:ERROR_CHARACTERS_MAX],
            **_STATES,
        }
        return self._items.update_write(
            _key_of(query_id, sub_query_id),
            "SET #lastKnownState = :state, #rowCount = :rows, #lastUpdateTime = :now,"
            f" #expiryDate = :expiry{change}",
            f"{_IS_NEW} OR {_IS_UNFINISHED}",
            values,
        )

    def _count_subquery(
        self, query_id: str, rows: int, error: str | None, room: int | None
    ) -> Write:
        """Counts a finished subquery, if the query has at most `room` rows (None: any number)."""
        change = "" if error is None else ", #errors = if_not_exists(#errors, :error)"
        values = {
            "now": self._now(),
            "one": 1,
            "failed": int(error is not None),
            "rows": rows,
            "error": error and error[:ERROR_CHARACTERS_MAX],
            "room": room,
        }
        return self._items.update_write(
            _key_of(query_id, WHOLE_QUERY),
            f"SET #lastUpdateTime = :now{change}"
            " ADD #finishedSubQueries :one, #failedSubQueries :failed, #rowCount :rows",
            "attribute_exists(#queryId)" + ("" if room is None else " AND #rowCount <= :room"),
            values,
        )

    def _update(
        self, query_id: str, sub_query_id: str, change: str, condition: str, values: Item
    ) -> Item:
        """Makes a change that only sets attributes, and returns the item after it.

        boto3 repeats a request whose response was lost, and the condition then refuses the
        repetition. So each change leaves a fresh write id in the item, which identifies it.
        """
        key, write_id = _key_of(query_id, sub_query_id), uuid.uuid4().hex
        change += ", #writeId = :writeId"
        values = {"now": self._now(), "writeId": write_id, **values}
        try:
            return self._items.retry_conflicts(
                lambda: self._items.update(key, change, condition, values)
            )
        except RefusedError:
            item = self._items.get(key)
            if item is None or item.get("writeId") != write_id:
                raise
            return item

    def _read(self, query_id: str) -> Item:
        item = self._items.get(_key_of(query_id, WHOLE_QUERY))
        if item is None:
            raise NotFoundError(f"query {query_id!r} does not exist")
        return item

    def _read_all(self, query_id: str) -> list[Item]:
        """Returns the items of the query and of its subqueries."""
        return list(self._items.query("#queryId = :queryId", {"queryId": query_id}))

    def _newest(self, before_ms: int | None = None) -> Iterator[Item]:
        """Yields the keys of queries, newest first."""
        condition = "#listing = :listing" + ("" if before_ms is None else " AND #at < :before")
        values = {"listing": _LISTING, "before": before_ms}
        return map(_key, self._items.query(condition, values, RECENT.name, newest_first=True))

    def _new_item(self, query_id: str, sub_query_id: str) -> Item:
        return {
            **_key_of(query_id, sub_query_id),
            "lastKnownState": QueryState.QUEUED.value,
            "rowCount": 0,
            "lastUpdateTime": self._now(),
            TIME_TO_LIVE: self._expiry(),
        }

    def _now(self) -> int:
        return self._clock() // 1000

    def _expiry(self) -> int:
        return self._now() + self._days * 86_400


def _key_of(query_id: str, sub_query_id: str) -> Item:
    return {"queryId": query_id, "subQueryId": sub_query_id}


def _key(item: Item) -> Item:
    return _key_of(item["queryId"], item["subQueryId"])


def _state(item: Item) -> QueryState:
    return QueryState(item["lastKnownState"])


def _status(item: Item) -> QueryStatus:
    return QueryStatus(
        query_id=item["queryId"],
        sub_query_id=item["subQueryId"],
        state=_state(item),
        row_count=item.get("rowCount", 0),
        updated_ms=item["lastUpdateTime"] * 1000,
        error=item.get("errors"),
        table_id=item.get("tableId"),
    )
