"""The endpoints that create, change and delete tables."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sleeper.admin.properties import change_table_properties
from sleeper.admin.table_requests import add_table_as_gchq as create_as_gchq
from sleeper.admin.table_requests import (
    create_requested_table,
    describe_refusal,
    property_members,
)
from sleeper.admin.tables import delete_table, set_online
from sleeper.errors import InvalidRequestError
from sleeper.json_members import boolean_member, check_members, text_member
from sleeper.reports.access import check_write_access
from sleeper.serve.access import TableAccess, identify_caller
from sleeper.serve.bodies import describe_problem, json_body
from sleeper.serve.endpoint import OBJECT, TEXT, Json, Model, list_schema, object_schema
from sleeper.serve.json_answer import change_table, respond
from sleeper.serve.row_writers import open_for_writes
from sleeper.serve.service import Service, check_writable

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
        ref = create_requested_table(service.instance, name, raw, property_members(raw))
        return {"name": ref.name, "id": ref.id}

    return await respond(work, 201)


async def add_table_as_gchq(service: Service, request: Request) -> Response:
    """Creates a table by a request of gchq/sleeper, and answers as that does."""
    try:
        check_writable(service)
        raw = await json_body(request, service.limits.body_bytes_max)
    except HTTPException as error:
        status, answer = describe_refusal(HTTPStatus(error.status_code), error.detail)
    except InvalidRequestError as error:
        status, problem = describe_problem(error)
        status, answer = describe_refusal(status, problem["reason"])
    else:
        status, answer = await to_thread.run_sync(create_as_gchq, service.instance, raw)
    return JSONResponse(answer, status)


async def change_table_definition(service: Service, request: Request) -> Response:
    """Sets properties of a table, or puts it online or offline."""

    def work(name: str, raw: Mapping[str, Any]) -> Json:
        values = property_members(raw)
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
