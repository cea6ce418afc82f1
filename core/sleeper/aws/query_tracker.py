"""The query tracker on DynamoDB (docs/formats.md, "Query tracker").

A query and each of its subqueries are items. The query's item counts planned, finished and failed
subqueries and their rows. One transaction ends a subquery and counts it, so nothing is counted
twice and no read covers all subqueries. A new run of an id replaces the query's item. Items of
subqueries of an older run are deleted after that, and never listed.
"""

import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from sleeper.aws.dynamo import TRANSACTION_WRITES_MAX, DynamoItems, Item, Put, Write
from sleeper.aws.errors import RefusedError
from sleeper.aws.query_items import (
    STATUS_ATTRIBUTES,
    key_of,
    key_only,
    run_condition,
    run_of_item,
    run_values,
    state_of,
    status_of,
    unchanged_condition,
)
from sleeper.clock import Clock, system_clock
from sleeper.errors import ConflictError, NotFoundError
from sleeper.jobs.query_tracker import (
    ERROR_CHARACTERS_MAX,
    WHOLE_QUERY,
    QueryPin,
    QueryState,
    QueryStatus,
    derive_query_state,
    format_rows_error,
)
from sleeper.properties.deployed import RECENT, TIME_TO_LIVE
from sleeper.retries import Backoff, retry

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_LISTING = "query"
_WRITERS = 8
# The position of the query's item in the transaction that ends a subquery.
_QUERY_WRITE = 1
_IS_NEW = "attribute_not_exists(#queryId)"
_IS_UNFINISHED = "#lastKnownState IN (:queued, :running)"
_REMOVED = (
    "REMOVE #tableId, #version, #queryTime, #subQueries, #finishedSubQueries, #failedSubQueries"
)
_FAILED_AT_ONCE = (
    ", #fingerprint = :fingerprint, #listing = :listing, #at = :at, #rowCount = :none,"
    " #messages = :messages"
)
_RACES = Backoff(retries=9, seconds_first=0.01)
_STATES = {"queued": QueryState.QUEUED.value, "running": QueryState.IN_PROGRESS.value}


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
        item = {
            **self._new_item(query_id, WHOLE_QUERY, pin.run),
            "listing": _LISTING,
            "at": self._clock(),
            "fingerprint": pin.fingerprint,
            "messages": pin.run,
            "tableId": pin.table_id,
            "version": pin.version,
            "queryTime": pin.now_ms,
        }
        try:
            self._items.put(item, _IS_NEW)
            return pin
        except RefusedError:
            return retry(lambda: self._begin_again(pin, item), on=ConflictError, backoff=_RACES)

    def _begin_again(self, pin: QueryPin, item: Item) -> QueryPin | None:
        """Joins the query of an earlier message, or replaces it. ConflictError if it changed."""
        query_id = item["queryId"]
        stored = self._read(query_id)
        run = run_of_item(stored)
        if run.is_over_for(pin.fingerprint, pin.run):
            return None
        if run.starts_over(pin.fingerprint):
            replacement = {**item, "messages": run.add(pin.run)}
            self._items.put(replacement, unchanged_condition(run), run_values(run))
            self._delete_subqueries(query_id, pin.run)
            return replace(pin, replaces=True)
        if not run.knows(pin.run):
            values = {**run_values(run), "messages": run.add(pin.run)}
            change = "SET #messages = :messages, #lastUpdateTime = :now"
            stored = self._update(query_id, WHOLE_QUERY, change, unchanged_condition(run), values)
        return QueryPin(
            pin.fingerprint,
            stored["tableId"],
            stored["version"],
            stored["queryTime"],
            run.run,
            run.replaces,
        )

    def _delete_subqueries(self, query_id: str, newest_run: str) -> None:
        """Deletes the items of subqueries of older runs."""
        items = self._read_all(query_id)
        old = [i for i in items if i.get("run", "") != newest_run]
        self._items.delete([key_only(item) for item in old if item["subQueryId"] != WHOLE_QUERY])

    def is_newest(self, query_id: str, run: str) -> bool:
        item = self._items.get(key_of(query_id, WHOLE_QUERY))
        return item is None or item.get("run", "") == run

    def plan(self, query_id: str, sub_query_ids: Sequence[str], run: str = "") -> None:
        """See the port. It writes transactions of a hundred subqueries, some concurrently."""
        puts: list[Put] = [(self._new_item(query_id, i, run), _IS_NEW, {}) for i in sub_query_ids]
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
                f"{_IS_UNFINISHED} AND {run_condition(run)}",
                {"state": state.value, "count": len(puts), "run": run or None, **_STATES},
            )

    def start(self, query_id: str, sub_query_id: str, run: str = "") -> bool:
        if not self.is_newest(query_id, run):
            return False
        change = ", #run = :run" if run else ""
        try:
            self._update(
                query_id,
                sub_query_id,
                "SET #lastKnownState = :running, #lastUpdateTime = :now, #expiryDate = :expiry,"
                f" #rowCount = if_not_exists(#rowCount, :none){change}",
                f"{_IS_NEW} OR {_IS_UNFINISHED}",
                {"none": 0, "expiry": self._expiry(), "run": run or None, **_STATES},
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
        run: str = "",
    ) -> QueryStatus | None:
        room = rows_max - rows if rows_max and error is None else None
        writes = [
            self._end_subquery(query_id, sub_query_id, rows, error, run),
            self._count_subquery(query_id, rows, error, room, run),
        ]
        try:
            self._items.retry_conflicts(lambda: self._items.transact(writes))
        except RefusedError as refused:
            # The subquery was finished before, or the query was removed or started over, or has
            # too many rows.
            if room is not None and _QUERY_WRITE in refused.items:
                error = format_rows_error(rows_max)
                return self.finish(query_id, sub_query_id, 0, error, run=run)
        return self._end_query(query_id, run)

    def fail(
        self, query_id: str, fingerprint: str, error: str, run: str = ""
    ) -> QueryStatus | None:
        return retry(
            lambda: self._fail(query_id, fingerprint, error, run), on=ConflictError, backoff=_RACES
        )

    def _fail(
        self, query_id: str, fingerprint: str, error: str, message: str
    ) -> QueryStatus | None:
        """Fails the message's query once. ConflictError if the item changed meanwhile."""
        item = self._items.get(key_of(query_id, WHOLE_QUERY))
        run = None if item is None else run_of_item(item)
        if run is not None and run.is_over_for(fingerprint, message):
            return None
        values = {
            "failed": QueryState.FAILED.value,
            "error": error[:ERROR_CHARACTERS_MAX],
            "expiry": self._expiry(),
        }
        change = "SET #lastKnownState = :failed, #errors = :error, #lastUpdateTime = :now,"
        change += " #expiryDate = :expiry"
        if run is not None:
            values |= run_values(run)
        if run is None or run.starts_over(fingerprint):
            change = f"{_REMOVED} {change}{_FAILED_AT_ONCE}" + (", #run = :new" if message else "")
            values |= {
                "fingerprint": fingerprint,
                "listing": _LISTING,
                "at": self._clock(),
                "none": 0,
                "new": message or None,
                "messages": message if run is None else run.add(message),
            }
        condition = _IS_NEW if run is None else unchanged_condition(run)
        ended = self._update(query_id, WHOLE_QUERY, change, condition, values)
        if run is not None and run.run != ended.get("run", ""):
            self._delete_subqueries(query_id, message)
        return status_of(ended)

    def query(self, query_id: str) -> QueryStatus:
        return status_of(self._read(query_id))

    def subqueries(self, query_id: str) -> tuple[QueryStatus, ...]:
        items = self._read_all(query_id)
        runs = {i.get("run", "") for i in items if i["subQueryId"] == WHOLE_QUERY}
        return tuple(
            status_of(item)
            for item in items
            if item["subQueryId"] != WHOLE_QUERY and (not runs or item.get("run", "") in runs)
        )

    def recent(self, limit: int = 100) -> tuple[QueryStatus, ...]:
        keys = list(islice(self._newest(), limit))
        items = self._items.get_all(keys, STATUS_ATTRIBUTES)
        by_id = {item["queryId"]: status_of(item) for item in items}
        # A query may expire after the read of the index.
        return tuple(by_id[i] for i in (key["queryId"] for key in keys) if i in by_id)

    def remove_before(self, time_ms: int) -> int:
        """See the port. Queries also expire."""
        old = list(self._newest(before_ms=time_ms))
        for query in old:
            self._items.delete([key_only(item) for item in self._read_all(query["queryId"])])
        return len(old)

    def _end_query(self, query_id: str, run: str) -> QueryStatus | None:
        """Ends the query if it is not finished and all its subqueries are."""
        item = self._items.get(key_of(query_id, WHOLE_QUERY))
        if item is None or "subQueries" not in item or state_of(item).is_finished:
            return None
        if item.get("run", "") != run:
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
                f"{_IS_UNFINISHED} AND {run_condition(run)}",
                {"state": state.value, "run": run or None, **_STATES},
            )
        except RefusedError:
            return None
        return status_of(ended)

    def _end_subquery(
        self, query_id: str, sub_query_id: str, rows: int, error: str | None, run: str
    ) -> Write:
        state, change = QueryState.COMPLETED, ""
        if error is not None:
            state, change = QueryState.FAILED, ", #errors = :error"
        if run:
            change += ", #run = :run"
        values = {
            "state": state.value,
            "rows": rows,
            "now": self._now(),
            "expiry": self._expiry(),
            "error": error and error[:ERROR_CHARACTERS_MAX],
            "run": run or None,
            **_STATES,
        }
        return self._items.update_write(
            key_of(query_id, sub_query_id),
            "SET #lastKnownState = :state, #rowCount = :rows, #lastUpdateTime = :now,"
            f" #expiryDate = :expiry{change}",
            f"{_IS_NEW} OR {_IS_UNFINISHED}",
            values,
        )

    def _count_subquery(
        self, query_id: str, rows: int, error: str | None, room: int | None, run: str
    ) -> Write:
        """Counts a finished subquery of the id's newest run.

        Only if the query has at most `room` rows (None: any number).
        """
        change = "" if error is None else ", #errors = if_not_exists(#errors, :error)"
        values = {
            "now": self._now(),
            "one": 1,
            "failed": int(error is not None),
            "rows": rows,
            "error": error and error[:ERROR_CHARACTERS_MAX],
            "room": room,
            "run": run or None,
        }
        return self._items.update_write(
            key_of(query_id, WHOLE_QUERY),
            f"SET #lastUpdateTime = :now{change}"
            " ADD #finishedSubQueries :one, #failedSubQueries :failed, #rowCount :rows",
            f"attribute_exists(#queryId) AND {run_condition(run)}"
            + ("" if room is None else " AND #rowCount <= :room"),
            values,
        )

    def _update(
        self, query_id: str, sub_query_id: str, change: str, condition: str, values: Item
    ) -> Item:
        """Makes a change that only sets attributes, and returns the item after it.

        boto3 repeats a request whose response was lost, and the condition then refuses the
        repetition. So each change leaves a fresh write id in the item, which identifies it.
        """
        key, write_id = key_of(query_id, sub_query_id), uuid.uuid4().hex
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
        item = self._items.get(key_of(query_id, WHOLE_QUERY))
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
        return map(key_only, self._items.query(condition, values, RECENT.name, newest_first=True))

    def _new_item(self, query_id: str, sub_query_id: str, run: str) -> Item:
        return {
            **key_of(query_id, sub_query_id),
            "run": run or None,
            "lastKnownState": QueryState.QUEUED.value,
            "rowCount": 0,
            "lastUpdateTime": self._now(),
            TIME_TO_LIVE: self._expiry(),
        }

    def _now(self) -> int:
        return self._clock() // 1000

    def _expiry(self) -> int:
        return self._now() + self._days * 86_400
