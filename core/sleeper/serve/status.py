"""The endpoints that report on the server, on background work and on queries of the queue."""

import json
import logging
import uuid
from dataclasses import dataclass
from typing import Annotated

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sleeper.clock import iso_time
from sleeper.errors import InvalidRequestError, SleeperError
from sleeper.query.messages.query import QUERY_TYPE, QueryMessage, query_message_from_json
from sleeper.query_service.service import submit_query as send_query
from sleeper.reports.access import check_query_access, check_report_access
from sleeper.reports.output import REPORTS_OF_ALL, ReportKind, json_rows
from sleeper.reports.service import TablePage, count_tables, report
from sleeper.serve.endpoint import Call, Parameter, answers, endpoint, number_parameter
from sleeper.serve.rows import VERSION
from sleeper.serve.schema import (
    COUNT,
    OBJECT,
    OPTIONAL,
    TEXT,
    Model,
    Rows,
    Schema,
    list_schema,
    model_of,
    object_schema,
)
from sleeper.serve.service import Service

logger = logging.getLogger(__name__)
_LIMIT_DEFAULT = 100
_REPORTS = [*REPORTS_OF_ALL, ReportKind.ALL]
_NO_STORE = {"Cache-Control": "no-store"}


_HEALTH = Model("Health", object_schema({"status": TEXT}, {}))


@endpoint("GET", "/health", name="health", response=_HEALTH, errors=(503,))
async def report_health(service: Service, _request: Request) -> Response:
    """Returns whether the server can answer requests. Needs no token."""

    def read() -> bool:
        try:
            next(iter(service.instance.tables.index.list()), None)
        except SleeperError as error:
            # The log, not the response, has the reason.
            logger.error("could not read the instance: %s", error)
            return False
        return True

    if await to_thread.run_sync(read):
        return JSONResponse({"status": "ok"}, headers=_NO_STORE)
    return JSONResponse({"status": "unavailable"}, 503, _NO_STORE)


@endpoint("GET", "/health/live", name="live", response=_HEALTH)
async def report_live(_service: Service, _request: Request) -> Response:
    """Returns that the server runs. Needs no token."""
    return JSONResponse({"status": "ok"}, headers=_NO_STORE)


@dataclass(frozen=True, slots=True)
class Report:
    """A listing of a report."""

    report: str
    summary: str
    rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """A page of a report of the command line."""

    tables: Annotated[
        int | None, OPTIONAL, Schema("How many tables all pages of the report have.")
    ] = None
    reports: tuple[Report, ...]


@answers(
    "GET",
    "/status",
    Reports,
    name="report",
    errors=(400,),
    parameters=(
        Parameter("report", "The name of the report.", schema={"enum": _REPORTS}),
        Parameter("table", "The only table to report on."),
        Parameter("limit", "The maximum number of rows per report, and of tables.", schema=COUNT),
        Parameter("offset", "The number of tables to skip, in the order of names.", schema=COUNT),
    ),
)
def report_status(call: Call) -> Reports:
    """Reports the state of tables and of background work."""
    query = call.request.query_params
    limit = number_parameter(call.request, "limit", _LIMIT_DEFAULT)
    page = TablePage(number_parameter(call.request, "offset", 0), limit)
    name, table = query.get("report", ReportKind.TABLES.value), query.get("table")
    if name not in _REPORTS:
        raise InvalidRequestError(f"unknown report {name!r} (expected {', '.join(_REPORTS)})")
    kind = ReportKind(name)
    # The caller must be allowed to see all of its tables.
    check_report_access(call.instance, kind, table, call.caller)
    listings = report(call.instance, kind, table, limit, page)
    return Reports(
        tables=count_tables(call.instance, kind, table),
        reports=tuple(Report(each.name, each.summary, [*json_rows(each)]) for each in listings),
    )


@answers(
    "POST",
    "/queries",
    model_of(QueryMessage, "Submitted", "query_id"),
    errors=(400, 404, 413, 415),
    body=Model(
        "QueryMessage",
        object_schema(
            {"regions": list_schema(OBJECT)},
            {
                "queryId": TEXT,
                "tableName": TEXT,
                "tableId": TEXT,
                "asOf": VERSION,
                "requestedValueFields": list_schema(TEXT),
                "resultsPublisherConfig": OBJECT,
            },
        ),
    ),
    status=202,
)
def submit_query(call: Call) -> QueryMessage:
    """Sends a query to the queue. Its message names the destination of the results."""
    query_id = call.raw.get("queryId") or uuid.uuid4().hex
    sent = {**call.raw, "type": QUERY_TYPE, "queryId": query_id}
    message = query_message_from_json(sent, str(query_id))
    send_query(call.instance, message, json.dumps(sent))
    return message


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """The state of a query of the queue."""

    query_id: str
    state: str
    row_count: int
    updated: str
    error: str | None


@answers("GET", "/queries/{id:path}", QueryStatus, errors=(404,))
def query_status(call: Call) -> QueryStatus:
    """Returns the state of a query of the queue."""
    status = call.instance.queries.tracker().query(call.request.path_params["id"])
    check_query_access(call.instance, status, call.caller)
    return QueryStatus(
        status.query_id,
        status.state.value,
        status.row_count,
        iso_time(status.updated_ms),
        status.error,
    )
