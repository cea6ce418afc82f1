"""The query tracker on DynamoDB (docs/formats.md, "Query tracker").

A query and each of its subqueries is an item; the query's counts the others: subqueries that
there are, that are finished, that failed, and their rows. A subquery ends in one transaction
with that count, so nothing is counted twice and nobody reads every subquery. What clients do
not know (`fingerprint`, `version`, …) stands beside what they read.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

from sleeper.aws.dynamo_batches import Item
from sleeper.aws.errors import RefusedError
from sleeper.aws.query_items import LISTING, TRANSACTION_ITEMS, QueryItems, key_of
from sleeper.aws.tracker_items import number, text
from sleeper.clock import Clock, system_clock
from sleeper.errors import NotFoundError
from sleeper.jobs.query_tracker import (
    ERROR_CHARACTERS_MAX,
    WHOLE_QUERY,
    QueryIdTakenError,
    QueryPin,
    QueryState,
    QueryStatus,
    state_of_query,
    too_many_rows,
)
from sleeper.properties.dynamo_tables import TIME_TO_LIVE

_WRITERS = 8
# Of a subquery's end, which is its own item first.
_QUERY_ITEM = 1
_UNFINISHED = "lastKnownState IN (:queued, :running)"
_STATES = {":queued": {"S": "QUEUED"}, ":running": {"S": "IN_PROGRESS"}}


class DynamoQueryTracker:
    """Implements the ports of `sleeper.jobs.query_tracker`. Safe for threads.

    `days` is how long a query is kept.
    """

    def __init__(
        self, client: Any, table_name: str, days: int, clock: Clock = system_clock
    ) -> None:
        self._items = QueryItems(client, table_name)
        self._days = days
        self._clock = clock

    def begin(self, query_id: str, pin: QueryPin) -> QueryPin | None:
        """See the port."""
        item = {
            **self._new_item(query_id, WHOLE_QUERY, QueryState.QUEUED),
            **self._listed(),
            "fingerprint": {"S": pin.fingerprint},
            "tableId": {"S": pin.table_id},
            "version": {"N": str(pin.version)},
            "queryTime": {"N": str(pin.now_ms)},
        }
        try:
            self._items.put_new(item)
            return pin
        except RefusedError:
            found = self._items.get(query_id)
        if text(found, "fingerprint") != pin.fingerprint:
            raise QueryIdTakenError(query_id)
        if _state(found).is_finished:
            return None
        version, now_ms = int(found["version"]["N"]), int(found["queryTime"]["N"])
        return QueryPin(pin.fingerprint, found["tableId"]["S"], version, now_ms)

    def plan(self, query_id: str, sub_query_ids: Sequence[str]) -> None:
        """See the port. A hundred subqueries at a time, some hundreds beside each other."""
        items = [self._new_item(query_id, each, QueryState.QUEUED) for each in sub_query_ids]
        slices = [
            items[start : start + TRANSACTION_ITEMS]
            for start in range(0, len(items), TRANSACTION_ITEMS)
        ]
        if len(slices) == 1:
            self._items.put_missing(slices[0])
        elif slices:
            with ThreadPoolExecutor(_WRITERS) as writers:
                list(writers.map(self._items.put_missing, slices))
        state = QueryState.IN_PROGRESS if items else QueryState.COMPLETED
        try:
            self._items.update(
                self._change(
                    query_id,
                    WHOLE_QUERY,
                    "SET lastKnownState = :state, subQueries = :count, lastUpdateTime = :now",
                    _UNFINISHED,
                    {":state": {"S": state.value}, ":count": {"N": str(len(items))}, **_STATES},
                )
            )
        except RefusedError:
            return

    def start(self, query_id: str, sub_query_id: str) -> bool:
        """See the port."""
        try:
            self._items.update(
                self._change(
                    query_id,
                    sub_query_id,
                    "SET lastKnownState = :running, lastUpdateTime = :now, expiryDate = :expiry,"
                    " rowCount = if_not_exists(rowCount, :none)",
                    f"attribute_not_exists(queryId) OR {_UNFINISHED}",
                    {":none": {"N": "0"}, ":expiry": self._expiry(), **_STATES},
                )
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
            self._items.write_together(
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
            ":error": {"S": _cut(error)},
            ":fingerprint": {"S": fingerprint},
            ":expiry": self._expiry(),
            ":none": {"N": "0"},
            ":listing": {"S": LISTING},
            ":at": {"N": str(self._clock())},
            **_STATES,
        }
        try:
            found = self._items.update(
                self._change(
                    query_id,
                    WHOLE_QUERY,
                    "SET lastKnownState = :failed, #errors = :error, lastUpdateTime = :now,"
                    " fingerprint = :fingerprint, expiryDate = :expiry, listing = :listing,"
                    " #at = if_not_exists(#at, :at), rowCount = if_not_exists(rowCount, :none)",
                    "attribute_not_exists(queryId)"
                    f" OR (fingerprint = :fingerprint AND {_UNFINISHED})",
                    values,
                    {"#errors": "errors", "#at": "at"},
                )
            )
        except RefusedError:
            if text(self._items.get(query_id), "fingerprint") != fingerprint:
                raise QueryIdTakenError(query_id) from None
            return None
        return _status(found)

    def query(self, query_id: str) -> QueryStatus:
        """See the port."""
        return _status(self._items.get(query_id))

    def subqueries(self, query_id: str) -> tuple[QueryStatus, ...]:
        """See the port."""
        return tuple(_status(i) for i in self._items.of(query_id) if _sub_id(i) != WHOLE_QUERY)

    def recent(self, limit: int = 100) -> tuple[QueryStatus, ...]:
        """See the port."""
        keys = list(islice(self._items.newest(), limit))
        found = self._items.get_all(keys, _NAMES)
        by_id = {item["queryId"]["S"]: _status(item) for item in found}
        # One may have expired since the index was read.
        return tuple(by_id[i] for i in (key["queryId"]["S"] for key in keys) if i in by_id)

    def remove_before(self, time_ms: int) -> int:
        """See the port. Without it they expire by themselves."""
        old = [key["queryId"]["S"] for key in self._items.newest(before_ms=time_ms)]
        for query_id in old:
            self._items.delete(query_id)
        return len(old)

    def _end(self, query_id: str) -> QueryStatus | None:
        """Ends the query if its subqueries are all finished and it is not."""
        try:
            found = self._items.get(query_id)
        except NotFoundError:
            return None
        planned = number(found, "subQueries")
        if planned is None or _state(found).is_finished:
            return None
        counts = (number(found, name) or 0 for name in ("finishedSubQueries", "failedSubQueries"))
        state = state_of_query(planned, *counts)
        if not state.is_finished:
            return None
        try:
            return _status(
                self._items.update(
                    self._change(
                        query_id,
                        WHOLE_QUERY,
                        "SET lastKnownState = :state, lastUpdateTime = :now",
                        _UNFINISHED,
                        {":state": {"S": state.value}, **_STATES},
                    )
                )
            )
        except RefusedError:
            return None

    def _ended_subquery(
        self, query_id: str, sub_query_id: str, state: QueryState, rows: int, error: str | None
    ) -> Item:
        errors = {} if error is None else {":error": {"S": _cut(error)}}
        return self._change(
            query_id,
            sub_query_id,
            "SET lastKnownState = :state, rowCount = :rows, lastUpdateTime = :now,"
            " expiryDate = :expiry" + (", #errors = :error" if errors else ""),
            f"attribute_not_exists(queryId) OR {_UNFINISHED}",
            {
                ":state": {"S": state.value},
                ":rows": {"N": str(rows)},
                ":expiry": self._expiry(),
                **errors,
                **_STATES,
            },
            {"#errors": "errors"} if errors else {},
        )

    def _counted(self, query_id: str, rows: int, error: str | None, room: int | None) -> Item:
        """`room`: how many rows the query may have before these; None is any number."""
        failed = error is not None
        fits = "" if room is None else " AND rowCount <= :room"
        kept = ", #errors = if_not_exists(#errors, :error)" if failed else ""
        return self._change(
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
                **({":error": {"S": _cut(error)}} if failed else {}),
            },
            {"#errors": "errors"} if failed else {},
        )

    def _change(
        self,
        query_id: str,
        sub_query_id: str,
        expression: str,
        condition: str,
        values: Item,
        names: dict[str, str] | None = None,
    ) -> Item:
        told = {":now": self._now(), **values}
        return self._items.change(query_id, sub_query_id, expression, condition, told, names)

    def _new_item(self, query_id: str, sub_query_id: str, state: QueryState) -> Item:
        return {
            **key_of(query_id, sub_query_id),
            "lastKnownState": {"S": state.value},
            "rowCount": {"N": "0"},
            "lastUpdateTime": self._now(),
            TIME_TO_LIVE: self._expiry(),
        }

    def _listed(self) -> Item:
        return {"listing": {"S": LISTING}, "at": {"N": str(self._clock())}}

    def _now(self) -> Item:
        return {"N": str(self._clock() // 1000)}

    def _expiry(self) -> Item:
        return {"N": str(self._clock() // 1000 + self._days * 86_400)}


_NAMES = "queryId, subQueryId, lastKnownState, rowCount, lastUpdateTime, errors, tableId"


def _sub_id(item: Item) -> str:
    return str(item["subQueryId"]["S"])


def _state(item: Item) -> QueryState:
    return QueryState(item["lastKnownState"]["S"])


def _status(item: Item) -> QueryStatus:
    return QueryStatus(
        query_id=item["queryId"]["S"],
        sub_query_id=_sub_id(item),
        state=_state(item),
        row_count=number(item, "rowCount") or 0,
        updated_ms=int(item["lastUpdateTime"]["N"]) * 1000,
        error=text(item, "errors"),
        table_id=text(item, "tableId"),
    )


def _cut(error: str | None) -> str:
    return (error or "")[:ERROR_CHARACTERS_MAX]
