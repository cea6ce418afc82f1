"""The endpoints that describe tables: their list, their fields, their history."""

import json

from starlette.requests import Request
from starlette.responses import Response

from sleeper.processing.restriction import NO_RESTRICTION, visible_schema
from sleeper.properties.table import AGGREGATIONS, FILTERS, ITERATOR_CLASS_NAME, ITERATOR_CONFIG
from sleeper.query.service import restrict_caller
from sleeper.reports.access import check_history_access
from sleeper.reports.history import describe_history
from sleeper.reports.output import json_rows
from sleeper.reports.service import report_table
from sleeper.schema.model import schema_to_json
from sleeper.serve.access import identify_caller
from sleeper.serve.endpoint import COUNT, OBJECT, TEXT, Json, Model, list_schema, object_schema
from sleeper.serve.json_answer import respond
from sleeper.serve.parameters import number_parameter
from sleeper.serve.service import Service

_LIMIT_DEFAULT = 50
_READ_PROPERTIES = (FILTERS, AGGREGATIONS, ITERATOR_CLASS_NAME, ITERATOR_CONFIG)
_OPTIONAL_COUNT: Json = {"type": ["integer", "null"], "minimum": 0}
_TABLE: Json = {"name": TEXT, "id": TEXT, "online": {"type": "boolean"}}
_TRANSACTION: Json = {
    "number": COUNT,
    "time": TEXT,
    "operation": TEXT,
    "files": _OPTIONAL_COUNT,
    "rows": _OPTIONAL_COUNT,
    "bytes": _OPTIONAL_COUNT,
    "job": {"type": ["string", "null"]},
}
TABLES = Model("Tables", object_schema({"tables": list_schema(object_schema(_TABLE))}))
TABLE = Model(
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
)
HISTORY = Model(
    "History",
    object_schema(
        {
            "recorded": {**COUNT, "description": "transactions that the state keeps"},
            "transactions": list_schema(
                object_schema(_TRANSACTION),
                "Files, rows and bytes are those that the transaction wrote, assigned or removed.",
            ),
        }
    ),
)


async def list_tables(service: Service, _request: Request) -> Response:
    """Responds with the names of all tables."""

    def work() -> Json:
        refs = sorted(service.instance.tables.index.list(), key=lambda ref: ref.name)
        return {"tables": [{"name": r.name, "id": r.id, "online": r.online} for r in refs]}

    return await respond(work)


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

    return await respond(work)


async def table_history(service: Service, request: Request) -> Response:
    """Responds with what each transaction of a table did, if the caller may see all of it."""
    name, caller = request.path_params["name"], identify_caller(request)
    limit = number_parameter(request, "limit", _LIMIT_DEFAULT)

    def work() -> Json:
        table = service.instance.table(name)
        check_history_access(table, caller)
        with table.state.reading() as state:
            entries, kept = state.history.newest(limit), state.history.count()
        listing = describe_history(name, entries, kept)
        return {"recorded": kept, "transactions": list(json_rows(listing))}

    return await respond(work)
