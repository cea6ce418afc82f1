"""What can be asked over HTTP, apart from rows: tables, reports, queries in the queue."""

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sleeper.clock import iso_time
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.processing.restriction import NO_RESTRICTION, visible_schema
from sleeper.properties.table import AGGREGATIONS, FILTERS, ITERATOR_CLASS_NAME, ITERATOR_CONFIG
from sleeper.query.messages.query import QUERY_TYPE, query_message_from_json
from sleeper.query.service import restriction_for
from sleeper.query_service.submit import submit_query
from sleeper.reports.access import check_query_access, check_report_access
from sleeper.reports.output import Listing, ReportKind, json_rows
from sleeper.reports.service import report, report_table
from sleeper.schema.json import schema_to_json
from sleeper.serve.access import caller_of
from sleeper.serve.bodies import json_body
from sleeper.serve.fetch import Service

_ROWS_SHOWN = 100
_LIMIT_DIGITS_MAX = 19
_READERS_PROPERTIES = (FILTERS, AGGREGATIONS, ITERATOR_CLASS_NAME, ITERATOR_CONFIG)


@dataclass(frozen=True, slots=True)
class Routes:
    """Answers by one thread each; none of them reads rows."""

    instance: Instance
    service: Service

    async def tables(self, _request: Request) -> Response:
        """All tables by name."""
        return await _answered(self._tables)

    async def table(self, request: Request) -> Response:
        """One table: its schema, what it holds, and what is done to rows that are read.

        Whoever may not see all of it is told of the fields that he may see.
        """
        return await _answered(
            partial(self._table, request.path_params["name"], caller_of(request))
        )

    async def status(self, request: Request) -> Response:
        """A report, as the command line gives it, for whoever may see all that it is of."""
        asked = request.query_params
        limit = asked.get("limit", str(_ROWS_SHOWN))
        if not (limit.isascii() and limit.isdigit() and len(limit) < _LIMIT_DIGITS_MAX):
            raise InvalidRequestError(
                f'"limit" must be a whole number of less than {_LIMIT_DIGITS_MAX} digits, not '
                f"{limit[:200]!r}"
            )
        kind = asked.get("report", ReportKind.TABLES.value)
        if kind not in set(ReportKind):
            known = ", ".join(ReportKind)
            raise InvalidRequestError(f"there is no report {kind!r}; there are: {known}")
        chosen = ReportKind(kind)
        caller = caller_of(request)
        return await _answered(
            partial(self._status, chosen, asked.get("table"), int(limit), caller)
        )

    async def submit(self, request: Request) -> Response:
        """Sends a query to the queue (docs/formats.md, "Query messages")."""
        raw = await json_body(request, self.service.terms.body_bytes_max)
        query_id = raw.get("queryId") or uuid.uuid4().hex
        sent = {**raw, "type": QUERY_TYPE, "queryId": query_id}
        message = query_message_from_json(sent, str(query_id))
        send = partial(submit_query, self.instance, message, json.dumps(sent))
        return await _answered(partial(_submitted, send, message.query_id), status=202)

    async def query(self, request: Request) -> Response:
        """What has become of a query."""
        return await _answered(partial(self._query, request.path_params["id"], caller_of(request)))

    def _tables(self) -> dict[str, Any]:
        refs = sorted(self.instance.tables.index.list(), key=lambda ref: ref.name)
        return {"tables": [{"name": r.name, "id": r.id, "online": r.online} for r in refs]}

    def _table(self, name: str, caller: str) -> dict[str, Any]:
        sight = restriction_for(self.instance.table(name), caller)
        found = report_table(self.instance, name)
        schema = visible_schema(sight, found.schema)
        told = {
            "name": found.table.name,
            "id": found.table.id,
            "online": found.table.online,
            "version": found.version,
            "schema": json.loads(schema_to_json(schema)),
        }
        if sight != NO_RESTRICTION:
            return told
        properties = self.instance.table(name).properties()
        totals = found.totals
        return told | {
            "rows": totals.rows,
            "files": totals.files,
            "bytes": totals.bytes,
            "leaves": totals.leaves,
            "properties": {
                each.name: text
                for each in _READERS_PROPERTIES
                if (text := properties.values.get(each.name))
            },
        }

    def _status(
        self, kind: ReportKind, table: str | None, limit: int, caller: str
    ) -> dict[str, Any]:
        check_report_access(self.instance, kind, table, caller)
        listings = report(self.instance, kind, table, limit)
        return {"reports": [_listing(each) for each in listings]}

    def _query(self, query_id: str, caller: str) -> dict[str, Any]:
        status = self.instance.queries.tracker().query(query_id)
        check_query_access(self.instance, status, caller)
        return {
            "queryId": status.query_id,
            "state": status.state.value,
            "rowCount": status.row_count,
            "updated": iso_time(status.updated_ms),
            "error": status.error,
        }


async def _answered(work: Callable[[], dict[str, Any]], status: int = 200) -> Response:
    return JSONResponse(await to_thread.run_sync(work), status)


def _submitted(send: Callable[[], None], query_id: str) -> dict[str, Any]:
    send()
    return {"queryId": query_id}


def _listing(listing: Listing) -> dict[str, Any]:
    return {"report": listing.name, "summary": listing.summary, "rows": list(json_rows(listing))}
