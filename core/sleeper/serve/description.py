"""What can be asked over HTTP, as OpenAPI 3.1. `docs/openapi.json` is made of it."""

from typing import Any

from sleeper import __version__
from sleeper.reports.output import ReportKind
from sleeper.serve.row_formats import ROW_FORMATS

Json = dict[str, Any]

_TEXT: Json = {"type": "string"}
_COUNT: Json = {"type": "integer", "minimum": 0}
_NUMBER: Json = {"type": "integer", "minimum": 1}
_KEY_VALUE: Json = {"type": ["string", "integer"], "description": "bytes as base64"}
_OPEN_END: Json = {"type": ["string", "integer", "null"]}


def description() -> Json:
    """The whole description."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sleeper",
            "version": __version__,
            "summary": "Tables of an instance: what they are, and their rows.",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "security": [{}, {"bearer": []}],
        "paths": _paths(),
        "components": {
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Of a server that has one. On AWS: IAM, signature version 4.",
                }
            },
            "schemas": _schemas(),
        },
    }


def _paths() -> Json:
    name = _parameter("name", "path", "A table's name.")
    return {
        "/tables": {"get": _operation("listTables", "All tables.", _json("Tables"))},
        "/tables/{name}": {
            "parameters": [name],
            "get": _operation("describeTable", "A table.", _json("Table"), (404,)),
        },
        "/tables/{name}/query": {
            "parameters": [name],
            "post": {
                **_operation(
                    "queryTable",
                    "Rows of a table in any of the keys, ranges and regions, in key order; all "
                    "rows if none is given.",
                    _rows(),
                    (400, 404, 406, 409, 413, 415, 503),
                ),
                "requestBody": _body("Query"),
            },
        },
        "/sql": {
            "post": {
                **_operation(
                    "runSql",
                    "Rows of one SELECT over all tables, each at its newest version.",
                    _rows(),
                    (400, 406, 409, 413, 415, 503),
                ),
                "requestBody": _body("Statement"),
            }
        },
        "/status": {
            "parameters": [
                _parameter("report", "query", "Which report.", {"enum": list(ReportKind)}),
                _parameter("table", "query", "Of this table alone."),
                _parameter("limit", "query", "At most so many rows a report.", _COUNT),
            ],
            "get": _operation(
                "report", "What there is, and what is done.", _json("Reports"), (400,)
            ),
        },
        "/queries": {
            "post": {
                **_operation(
                    "submitQuery",
                    "Sends a query to the queue; its results go where it says.",
                    _json("Submitted"),
                    (400, 404, 413, 415),
                    status=202,
                ),
                "requestBody": _body("QueryMessage"),
            }
        },
        "/queries/{id}": {
            "parameters": [_parameter("id", "path", "A query's id.")],
            "get": _operation(
                "queryStatus", "What has become of a query.", _json("QueryStatus"), (404,)
            ),
        },
    }


def _schemas() -> Json:
    table = {"name": _TEXT, "id": _TEXT, "online": {"type": "boolean"}}
    return {
        "Tables": _object({"tables": _list(_object(table))}),
        "Table": _object(
            {
                **table,
                "version": _COUNT,
                "schema": {"type": "object", "description": "schema JSON"},
            },
            {
                "rows": {**_COUNT, "description": "in files, before aggregation"},
                "files": _COUNT,
                "bytes": _COUNT,
                "leaves": _COUNT,
                "properties": {"type": "object", "additionalProperties": _TEXT},
            },
            "What is not required is for callers who may see all of the table.",
        ),
        "Query": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "keys": _list(
                    {"oneOf": [_KEY_VALUE, _list(_KEY_VALUE)]},
                    "A value for each row key field; one that is alone needs no list.",
                ),
                "ranges": _list(
                    {"type": "array", "items": _OPEN_END, "minItems": 2, "maxItems": 2},
                    "[min, max] of the first row key field, max excluded; null is open.",
                ),
                "regions": _list(
                    {"type": "object"},
                    "Ranges by row key field, as in query messages; strings are base64 unless "
                    "stringsBase64Encoded is false.",
                ),
                "columns": _list(_TEXT),
                "limit": _COUNT,
                "asOf": {**_NUMBER, "description": "a transaction number"},
                "filters": _TEXT,
                "aggregations": _TEXT,
                "iterator": _TEXT,
                "iteratorConfig": _TEXT,
            },
        },
        "Statement": {
            "type": "object",
            "additionalProperties": False,
            "required": ["statement"],
            "properties": {
                "statement": _TEXT,
                "asOf": {
                    "oneOf": [_NUMBER, {"type": "object", "additionalProperties": _NUMBER}],
                    "description": "A transaction number of the only table, or numbers by table.",
                },
            },
        },
        "QueryMessage": {
            "type": "object",
            "required": ["regions"],
            "properties": {
                "queryId": _TEXT,
                "tableName": _TEXT,
                "tableId": _TEXT,
                "regions": _list({"type": "object"}),
                "requestedValueFields": _list(_TEXT),
                "resultsPublisherConfig": {"type": "object"},
            },
        },
        "Submitted": _object({"queryId": _TEXT}),
        "QueryStatus": _object(
            {
                "queryId": _TEXT,
                "state": _TEXT,
                "rowCount": _COUNT,
                "updated": _TEXT,
                "error": {"type": ["string", "null"]},
            }
        ),
        "Reports": _object(
            {
                "reports": _list(
                    _object({"report": _TEXT, "summary": _TEXT, "rows": _list({"type": "object"})})
                )
            }
        ),
        "Problem": _object({"error": _TEXT, "reason": _TEXT}),
    }


def _operation(
    name: str, summary: str, content: Json, problems: tuple[int, ...] = (), status: int = 200
) -> Json:
    problem = {"description": "refused, and why", "content": _json("Problem")}
    return {
        "operationId": name,
        "summary": summary,
        "responses": {
            str(status): {"description": "done", "content": content},
            **{str(each): problem for each in (*problems, 401, 403)},
            "default": problem,
        },
    }


def _rows() -> Json:
    return {each.media_type: {} for each in ROW_FORMATS}


def _json(schema: str) -> Json:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _body(schema: str) -> Json:
    return {"required": True, "content": _json(schema)}


def _parameter(name: str, place: str, text: str, schema: Json = _TEXT) -> Json:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": text,
        "schema": schema,
    }


def _object(members: Json, others: Json | None = None, text: str | None = None) -> Json:
    """Of members that are always there, and others."""
    told = {"description": text} if text else {}
    properties = {**members, **(others or {})}
    return {"type": "object", **told, "required": list(members), "properties": properties}


def _list(items: Json, text: str | None = None) -> Json:
    return {"type": "array", "items": items, **({"description": text} if text else {})}
