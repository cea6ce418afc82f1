"""The endpoints that create, change and delete tables."""

import json
from collections.abc import Mapping
from typing import Any

from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sleeper.admin.properties import change_table_properties
from sleeper.admin.tables import create_table, delete_table, parse_split_points, set_online
from sleeper.errors import ConflictError, InvalidRequestError
from sleeper.instance import Instance
from sleeper.json_members import boolean_member, check_members, list_member, text_member
from sleeper.properties.table import NAME, SPLITS_BASE64
from sleeper.reports.access import check_write_access
from sleeper.schema.model import KeyValue, schema_from_json
from sleeper.serve.access import TableAccess, identify_caller
from sleeper.serve.bodies import describe_problem, json_body
from sleeper.serve.endpoint import OBJECT, TEXT, Json, Model, list_schema, object_schema
from sleeper.serve.json_answer import change_table, respond
from sleeper.serve.row_writers import open_for_writes
from sleeper.serve.service import Service, check_writable
from sleeper.tables import TableRef

_VALUES: Json = {**OBJECT, "additionalProperties": TEXT, "description": "by the properties' names"}
_DEFINITION: Json = {
    "schema": {**OBJECT, "description": "schema JSON"},
    "splitPoints": list_schema(
        {"type": ["string", "integer"]}, "values of the first row key field, ascending"
    ),
}
NEW_TABLE = Model(
    "NewTable",
    {
        **object_schema(
            {"name": TEXT, "schema": _DEFINITION["schema"]},
            {"properties": _VALUES, "splitPoints": _DEFINITION["splitPoints"]},
        ),
        "additionalProperties": False,
    },
)
CREATED = Model("Created", object_schema({"name": TEXT, "id": TEXT}))
ADD_TABLE = Model("AddTable", object_schema({"properties": _VALUES, **_DEFINITION}))
ADDED_TABLE = Model("AddedTable", object_schema({"tableId": TEXT, "tableName": TEXT}))
TABLE_CHANGES = Model(
    "TableChanges",
    {
        **OBJECT,
        "additionalProperties": False,
        "properties": {
            "properties": {**_VALUES, "description": "Empty text unsets a property."},
            "online": {"type": "boolean", "description": "Offline tables are not compacted."},
        },
    },
)
CHANGED = Model(
    "Changed",
    object_schema(
        {
            "name": TEXT,
            "online": {"type": "boolean"},
            "properties": {**_VALUES, "description": "those of the request, now"},
            "warnings": list_schema(TEXT),
        }
    ),
)
DELETED_TABLE = Model("DeletedTable", object_schema({"name": TEXT, "id": TEXT}))


async def add_table(service: Service, request: Request) -> Response:
    """Creates a table."""
    check_writable(service)
    raw = await json_body(request, service.limits.body_bytes_max)
    check_members(raw, NEW_TABLE.members)

    def work() -> Json:
        name = text_member(raw, "name")
        if name is None:
            raise InvalidRequestError('"name" is missing (expected the name of a new table)')
        ref = _create(service.instance, name, raw, _properties(raw))
        return {"name": ref.name, "id": ref.id}

    return await respond(work, 201)


async def add_table_as_gchq(service: Service, request: Request) -> Response:
    """Creates a table by a request of gchq/sleeper, and answers as that does."""
    try:
        check_writable(service)
        raw = await json_body(request, service.limits.body_bytes_max)
        ref = await to_thread.run_sync(_create_as_gchq, service.instance, raw)
    except HTTPException as error:
        return _gchq_problem(error.status_code, "invalid_request", error.detail)
    except ConflictError as error:
        return _gchq_problem(409, "table_already_exists", str(error))
    except Exception as error:
        status, body = describe_problem(error)
        kind = "internal_error" if status >= 500 else "invalid_request"
        return _gchq_problem(status, kind, body["reason"])
    return JSONResponse({"tableId": ref.id, "tableName": ref.name}, 201)


async def change_table_definition(service: Service, request: Request) -> Response:
    """Sets properties of a table, or puts it online or offline."""

    def work(name: str, raw: Mapping[str, Any]) -> Json:
        values = _properties(raw)
        if not values and raw.get("online") is None:
            raise InvalidRequestError('no changes (expected "properties" or "online")')
        is_online = boolean_member(raw, "online")
        warnings: tuple[str, ...] = ()
        if values:
            report = change_table_properties(service.instance, name, values)
            warnings = report.warnings
            values = {each: report.after.value(each) for each in values}
        if raw.get("online") is not None:
            set_online(service.instance, name, is_online)
        ref = service.instance.table(name).ref
        return {
            "name": ref.name,
            "online": ref.online,
            "properties": values,
            "warnings": list(warnings),
        }

    return await change_table(service, request, TABLE_CHANGES, check_write_access, work)


async def remove_table(service: Service, request: Request) -> Response:
    """Deletes a table."""
    check_writable(service)
    access = TableAccess(request.path_params["name"], identify_caller(request))

    def work() -> Json:
        ref = open_for_writes(service.instance, access).ref
        delete_table(service.instance, ref.name)
        return {"name": ref.name, "id": ref.id}

    return await respond(work)


def _create_as_gchq(instance: Instance, raw: Mapping[str, Any]) -> TableRef:
    check_members(raw, ADD_TABLE.members)
    properties = dict(_properties(raw))
    name = properties.pop(NAME.name, None)
    if name is None:
        raise InvalidRequestError(f'"properties" has no {NAME.name} (expected the name of a table)')
    return _create(instance, name, raw, properties)


def _create(
    instance: Instance, name: str, raw: Mapping[str, Any], properties: Mapping[str, str]
) -> TableRef:
    definition = raw.get("schema")
    if not isinstance(definition, dict):
        raise InvalidRequestError(f'"schema" must be an object, not {definition!r:.200}')
    schema_text = json.dumps(definition)
    points = _split_points(schema_text, raw, properties.get(SPLITS_BASE64.name, "") == "true")
    return create_table(instance, name, schema_text, properties, points)


def _split_points(schema_text: str, raw: Mapping[str, Any], is_base64: bool) -> list[KeyValue]:
    schema = schema_from_json(schema_text)
    points: list[KeyValue] = []
    for place, point in enumerate(list_member(raw, "splitPoints")):
        where = f'"splitPoints[{place}]"'
        is_number = isinstance(point, int) and not isinstance(point, bool)
        if not is_number and not isinstance(point, str):
            raise InvalidRequestError(f"{where} must be text or an integer, not {point!r:.200}")
        parsed = parse_split_points(schema, str(point), where, is_base64)
        if len(parsed) != 1:
            raise InvalidRequestError(f"{where} must be one value, not {point!r:.200}")
        points += parsed
    return points


def _properties(raw: Mapping[str, Any]) -> Mapping[str, str]:
    values = raw.get("properties")
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InvalidRequestError(f'"properties" must be an object, not {values!r:.200}')
    for name, value in values.items():
        if not isinstance(value, str):
            raise InvalidRequestError(f'"properties": {name} must be text, not {value!r:.200}')
    return values


def _gchq_problem(status: int, kind: str, message: str) -> Response:
    return JSONResponse({"error": kind, "message": message}, status)
