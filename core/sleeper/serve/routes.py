"""The endpoints of the HTTP API, and the handlers of those without rows."""

import json
import uuid
from collections.abc import Callable
from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sleeper.clock import iso_time
from sleeper.errors import InvalidRequestError
from sleeper.processing.restriction import NO_RESTRICTION, visible_schema
from sleeper.properties.table import AGGREGATIONS, FILTERS, ITERATOR_CLASS_NAME, ITERATOR_CONFIG
from sleeper.query.messages.query import QUERY_TYPE, query_message_from_json
from sleeper.query.service import restrict_caller
from sleeper.query_service.service import submit_query
from sleeper.reports.access import (
    check_history_access,
    check_query_access,
    check_report_access,
)
from sleeper.reports.history import describe_history
from sleeper.reports.output import ReportKind, json_rows
from sleeper.reports.service import report, report_table
from sleeper.schema.model import schema_to_json
from sleeper.serve.access import identify_caller
from sleeper.serve.bodies import json_body
from sleeper.serve.deletes import DELETE, DELETED, delete_from_table
from sleeper.serve.endpoint import (
    COUNT,
    OBJECT,
    TEXT,
    Endpoint,
    Json,
    Model,
    Parameter,
    list_schema,
    object_schema,
)
from sleeper.serve.feed import FEED_PARAMETERS, table_changes
from sleeper.serve.parameters import number_parameter
from sleeper.serve.rows import QUERY, STATEMENT, VERSION, query_table, run_sql
from sleeper.serve.service import Service
from sleeper.serve.versions import (
    CLONE,
    CLONED,
    RESTORE,
    RESTORED,
    UNDO,
    UNDONE,
    clone,
    restore,
    undo,
)

_LIMIT_DEFAULT = 100
_HISTORY_LIMIT_DEFAULT = 50
_READ_PROPERTIES = (FILTERS, AGGREGATIONS, ITERATOR_CLASS_NAME, ITERATOR_CONFIG)


async def list_tables(service: Service, _request: Request) -> Response:
    """Responds with the names of all tables."""

    def work() -> Json:
        refs = sorted(service.instance.tables.index.list(), key=lambda ref: ref.name)
        return {"tables": [{"name": r.name, "id": r.id, "online": r.online} for r in refs]}

    return await _respond(work)


async def describe_table(service: Service, request: Request) -> Response:
    """Responds with the fields of a table that the caller may see.

    A caller without restrictions also gets its size and the processing of rows that are read.
    """
    instance, name = service.instance, request.path_params["name"]
    caller = identify_caller(request)

    def work() -> Json:
        restriction = restrict_caller(instance.table(name), caller)
        table_report = report_table(instance, name)
        schema = visible_schema(restriction, table_report.schema)
        members: Json = {
            "name": table_report.table.name,
            "id": table_report.table.id,
            "online": table_report.table.online,
            "version": table_report.version,
            "schema": json.loads(schema_to_json(schema)),
        }
        if restriction != NO_RESTRICTION:
            return members
        values = instance.table(name).properties().values
        totals = table_report.totals
        return members | {
            "rows": totals.rows,
            "files": totals.files,
            "bytes": totals.bytes,
            "leaves": totals.leaves,
            "properties": {p.name: values[p.name] for p in _READ_PROPERTIES if values.get(p.name)},
        }

    return await _respond(work)


async def table_history(service: Service, request: Request) -> Response:
    """Responds with what each transaction of a table did, if the caller may see all of it."""
    name, caller = request.path_params["name"], identify_caller(request)
    limit = _parse_limit(request, _HISTORY_LIMIT_DEFAULT)

    def work() -> Json:
        table = service.instance.table(name)
        check_history_access(table, caller)
        with table.state.reading() as state:
            entries, kept = state.history.newest(limit), state.history.count()
        listing = describe_history(name, entries, kept)
        return {"recorded": kept, "transactions": list(json_rows(listing))}

    return await _respond(work)


async def report_status(service: Service, request: Request) -> Response:
    """Responds with a report of the command line, if the caller may see all of its tables."""
    query = request.query_params
    limit = _parse_limit(request, _LIMIT_DEFAULT)
    kind = query.get("report", ReportKind.TABLES.value)
    if kind not in set(ReportKind):
        raise InvalidRequestError(f"unknown report {kind!r} (expected {', '.join(ReportKind)})")
    table, caller = query.get("table"), identify_caller(request)

    def work() -> Json:
        check_report_access(service.instance, ReportKind(kind), table, caller)
        listings = report(service.instance, ReportKind(kind), table, limit)
        return {
            "reports": [
                {"report": each.name, "summary": each.summary, "rows": list(json_rows(each))}
                for each in listings
            ]
        }

    return await _respond(work)


async def submit(service: Service, request: Request) -> Response:
    """Sends a query to the queue (docs/formats.md, "Query messages")."""
    raw = await json_body(request, service.limits.body_bytes_max)
    query_id = raw.get("queryId") or uuid.uuid4().hex
    sent = {**raw, "type": QUERY_TYPE, "queryId": query_id}
    message = query_message_from_json(sent, str(query_id))

    def work() -> Json:
        submit_query(service.instance, message, json.dumps(sent))
        return {"queryId": message.query_id}

    return await _respond(work, status=202)


async def query_status(service: Service, request: Request) -> Response:
    """Responds with the state of a query of the queue."""
    query_id, caller = request.path_params["id"], identify_caller(request)

    def work() -> Json:
        status = service.instance.queries.tracker().query(query_id)
        check_query_access(service.instance, status, caller)
        return {
            "queryId": status.query_id,
            "state": status.state.value,
            "rowCount": status.row_count,
            "updated": iso_time(status.updated_ms),
            "error": status.error,
        }

    return await _respond(work)


def _parse_limit(request: Request, default: int) -> int:
    limit = number_parameter(request, "limit")
    return default if limit is None else limit


async def _respond(work: Callable[[], dict[str, Any]], status: int = 200) -> Response:
    """Responds with the result of work in a thread."""
    return JSONResponse(await to_thread.run_sync(work), status)


_TABLE: Json = {"name": TEXT, "id": TEXT, "online": {"type": "boolean"}}
_REPORT: Json = {"report": TEXT, "summary": TEXT, "rows": list_schema(OBJECT)}
_OPTIONAL_TEXT: Json = {"type": ["string", "null"]}
_OPTIONAL_COUNT: Json = {"type": ["integer", "null"], "minimum": 0}
_TRANSACTION: Json = {
    "number": COUNT,
    "time": TEXT,
    "operation": TEXT,
    "files": _OPTIONAL_COUNT,
    "rows": _OPTIONAL_COUNT,
    "bytes": _OPTIONAL_COUNT,
    "job": _OPTIONAL_TEXT,
}
_TABLE_NAME = Parameter("name", "The name of a table.", "path")

ENDPOINTS = (
    Endpoint(
        "GET",
        "/tables",
        "listTables",
        "Lists all tables.",
        list_tables,
        Model("Tables", object_schema({"tables": list_schema(object_schema(_TABLE))})),
    ),
    Endpoint(
        "GET",
        "/tables/{name}",
        "describeTable",
        "Describes a table.",
        describe_table,
        Model(
            "Table",
            object_schema(
                {**_TABLE, "version": COUNT, "schema": {**OBJECT, "description": "schema JSON"}},
                {
                    "rows": {**COUNT, "description": "in files, before aggregation"},
                    "files": COUNT,
                    "bytes": COUNT,
                    "leaves": COUNT,
                    "properties": {**OBJECT, "additionalProperties": TEXT},
                },
                "Members that are not required are for callers who may see all of the table.",
            ),
        ),
        errors=(404,),
        parameters=(_TABLE_NAME,),
    ),
    Endpoint(
        "GET",
        "/tables/{name}/history",
        "tableHistory",
        "Returns what each transaction of a table did, newest first.",
        table_history,
        Model(
            "History",
            object_schema(
                {
                    "recorded": {**COUNT, "description": "transactions that the state keeps"},
                    "transactions": list_schema(
                        object_schema(_TRANSACTION),
                        "Files, rows and bytes are those that the transaction wrote, assigned or "
                        "removed.",
                    ),
                }
            ),
        ),
        errors=(400, 404),
        parameters=(
            _TABLE_NAME,
            Parameter("limit", "The maximum number of transactions.", schema=COUNT),
        ),
    ),
    Endpoint(
        "GET",
        "/tables/{name}/changes",
        "tableChanges",
        "Returns what each transaction of a table changed, in order: rows and deleted regions.",
        table_changes,
        None,
        errors=(400, 404, 406, 409, 413, 503),
        parameters=(_TABLE_NAME, *FEED_PARAMETERS),
    ),
    Endpoint(
        "POST",
        "/tables/{name}/query",
        "queryTable",
        "Returns the rows of a table in any of the keys, ranges and regions, in key order; all "
        "rows if none is given.",
        query_table,
        None,
        errors=(400, 404, 406, 409, 413, 415, 503),
        parameters=(_TABLE_NAME,),
        body=QUERY,
    ),
    Endpoint(
        "POST",
        "/tables/{name}/delete",
        "deleteFromTable",
        "Deletes the rows of a table in any of the keys, ranges and regions, in one transaction. "
        "A read-only server, such as the one on AWS, answers 403.",
        delete_from_table,
        DELETED,
        errors=(400, 404, 409, 413, 415, 503),
        parameters=(_TABLE_NAME,),
        body=DELETE,
    ),
    Endpoint(
        "POST",
        "/tables/{name}/restore",
        "restoreTable",
        "Makes the rows of a version those of the newest version, in one transaction. A read-only "
        "server answers 403.",
        restore,
        RESTORED,
        errors=(400, 404, 409, 413, 415, 503),
        parameters=(_TABLE_NAME,),
        body=RESTORE,
    ),
    Endpoint(
        "POST",
        "/tables/{name}/undo",
        "undoJob",
        "Takes back what an ingest or import added to a table, in one transaction. A read-only "
        "server answers 403.",
        undo,
        UNDONE,
        errors=(400, 404, 409, 413, 415, 503),
        parameters=(_TABLE_NAME,),
        body=UNDO,
    ),
    Endpoint(
        "POST",
        "/tables/{name}/clone",
        "cloneTable",
        "Creates a table on the files of a version of another, without copying data. A read-only "
        "server answers 403.",
        clone,
        CLONED,
        errors=(400, 404, 409, 413, 415, 503),
        parameters=(_TABLE_NAME,),
        body=CLONE,
    ),
    Endpoint(
        "POST",
        "/sql",
        "runSql",
        "Returns the rows of one SELECT over all tables, each at its newest version.",
        run_sql,
        None,
        errors=(400, 406, 409, 413, 415, 503),
        body=STATEMENT,
    ),
    Endpoint(
        "GET",
        "/status",
        "report",
        "Reports the state of tables and of background work.",
        report_status,
        Model(
            "Reports",
            object_schema({"reports": list_schema(object_schema(_REPORT))}),
        ),
        errors=(400,),
        parameters=(
            Parameter("report", "The name of the report.", schema={"enum": list(ReportKind)}),
            Parameter("table", "The only table to report on."),
            Parameter("limit", "The maximum number of rows per report.", schema=COUNT),
        ),
    ),
    Endpoint(
        "POST",
        "/queries",
        "submitQuery",
        "Sends a query to the queue. Its message names the destination of the results.",
        submit,
        Model("Submitted", object_schema({"queryId": TEXT})),
        errors=(400, 404, 413, 415),
        body=Model(
            "QueryMessage",
            {
                **OBJECT,
                "required": ["regions"],
                "properties": {
                    "queryId": TEXT,
                    "tableName": TEXT,
                    "tableId": TEXT,
                    "asOf": VERSION,
                    "regions": list_schema(OBJECT),
                    "requestedValueFields": list_schema(TEXT),
                    "resultsPublisherConfig": OBJECT,
                },
            },
        ),
        status=202,
    ),
    Endpoint(
        "GET",
        "/queries/{id:path}",
        "queryStatus",
        "Returns the state of a query of the queue.",
        query_status,
        Model(
            "QueryStatus",
            object_schema(
                {
                    "queryId": TEXT,
                    "state": TEXT,
                    "rowCount": COUNT,
                    "updated": TEXT,
                    "error": _OPTIONAL_TEXT,
                }
            ),
        ),
        errors=(404,),
        parameters=(Parameter("id", "The id of a query.", "path"),),
    ),
)
