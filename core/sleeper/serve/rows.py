"""Endpoints that respond with rows: a query of one table, and SQL over all tables."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from sleeper.errors import InvalidRequestError
from sleeper.json_members import check_members, number_member, text_list_member, text_member
from sleeper.partitions.selection import parse_selection
from sleeper.processing.model import Processing
from sleeper.processing.text import iterator_call, parse_aggregations, parse_filters
from sleeper.query.request import Query
from sleeper.query.result import TimeLimit
from sleeper.query.service import open_query, read_schema
from sleeper.query.sql.tables import parse_as_of
from sleeper.schema.model import Schema
from sleeper.serve.access import identify_caller
from sleeper.serve.bodies import json_body
from sleeper.serve.endpoint import endpoint
from sleeper.serve.row_answer import RowAnswer, choose_format
from sleeper.serve.schema import COUNT, OBJECT, POSITIVE, TEXT, Json, list_schema, request_model
from sleeper.serve.service import RowStream, Service
from sleeper.statestore.version import Version, parse_version

VERSION: Json = {
    "oneOf": [POSITIVE, TEXT],
    "description": "a transaction number, a time (ISO 8601), or an age such as 2h",
}

_KEY_VALUE: Json = {"type": ["string", "integer"], "description": "bytes as base64"}
_RANGE_END: Json = {"type": ["string", "integer", "null"]}
REGION_MEMBERS: Json = {
    "keys": list_schema(
        {"oneOf": [_KEY_VALUE, list_schema(_KEY_VALUE)]},
        "Lists with a value for each row key field; a single value needs no list.",
    ),
    "ranges": list_schema(
        {"type": "array", "items": _RANGE_END, "minItems": 2, "maxItems": 2},
        "[min, max] of the first row key field, max exclusive; null for an open end.",
    ),
    "regions": list_schema(
        OBJECT,
        "Ranges by row key field, as in query messages; strings are base64 unless "
        "stringsBase64Encoded is false.",
    ),
}
"""The schemas of members that select rows."""

QUERY = request_model(
    "Query",
    {},
    {
        **REGION_MEMBERS,
        "columns": list_schema(TEXT),
        "limit": COUNT,
        "asOf": VERSION,
        **dict.fromkeys(("filters", "aggregations", "iterator", "iteratorConfig"), TEXT),
    },
)
STATEMENT = request_model(
    "Statement",
    {"statement": TEXT},
    {
        "asOf": {
            "oneOf": [VERSION, {**OBJECT, "additionalProperties": VERSION}],
            "description": "The version of the only table, a time, or versions by table.",
        }
    },
)


@endpoint(
    "POST",
    "/tables/{name}/query",
    errors=(400, 404, 406, 409, 413, 415, 503),
    body=QUERY,
)
async def query_table(service: Service, request: Request) -> RowAnswer:
    """Returns the rows of a table in any of the keys, ranges and regions, in key order; all rows if
    none is given.
    """
    form = choose_format(request.headers.get("accept"))
    raw = await json_body(request, service.limits.body_bytes_max)
    name, caller = request.path_params["name"], identify_caller(request)

    def open_rows(limit: TimeLimit) -> RowStream:
        query = parse_query(read_schema(service.instance, name), raw)
        return open_query(service.instance, name, query, limit, caller)

    return RowAnswer(service, open_rows, form)


@endpoint("POST", "/sql", errors=(400, 406, 409, 413, 415, 503), body=STATEMENT)
async def run_sql(service: Service, request: Request) -> RowAnswer:
    """Returns the rows of one SELECT over all tables, each at its newest version."""
    form = choose_format(request.headers.get("accept"))
    raw = await json_body(request, service.limits.body_bytes_max)
    check_members(raw, STATEMENT.members)
    statement = text_member(raw, "statement")
    if not statement:
        raise InvalidRequestError('"statement" is missing (expected one SELECT)')
    caller, as_of = identify_caller(request), raw.get("asOf")
    parse_as_of(as_of)  # The process that runs the statement receives the JSON value.

    def open_rows(limit: TimeLimit) -> RowStream:
        return service.open_statement(statement, limit, caller, as_of)

    return RowAnswer(service, open_rows, form)


def parse_query(schema: Schema, raw: Mapping[str, Any]) -> Query:
    """Returns the query of a `Query` body.

    It selects the rows of all keys, ranges and regions; all rows if none is given. Keys and
    ranges have plain strings and base64 bytes. Raises `InvalidRequestError` with the name of the
    member that is wrong.
    """
    check_members(raw, QUERY.members)
    columns = raw.get("columns")
    return Query(
        parse_selection(schema, raw),
        None if columns is None else tuple(text_list_member(raw, "columns")),
        number_member(raw, "limit", 0),
        parse_version_member(raw, "asOf"),
        Processing(
            parse_filters(text_member(raw, "filters") or ""),
            parse_aggregations(text_member(raw, "aggregations") or ""),
            iterator_call(text_member(raw, "iterator"), text_member(raw, "iteratorConfig")),
        ),
    )


def parse_version_member(raw: Mapping[str, Any], name: str) -> Version | None:
    """Returns a member that selects a version; `None` if it is missing."""
    try:
        return None if raw.get(name) is None else parse_version(raw[name])
    except InvalidRequestError as error:
        raise InvalidRequestError(f'"{name}": {error}') from error
