"""The endpoint that deletes rows of a table."""

from collections.abc import Mapping
from typing import Any

from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sleeper.deletion.keys import delete_rows
from sleeper.deletion.message import parse_deleted_regions
from sleeper.deletion.service import check_delete_access
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.json_members import check_members, text_member
from sleeper.partitions.region import Region
from sleeper.query.service import read_schema
from sleeper.schema.model import Schema
from sleeper.serve.access import identify_caller
from sleeper.serve.bodies import json_body
from sleeper.serve.endpoint import COUNT, OBJECT, TEXT, Json, Model, object_schema
from sleeper.serve.regions import REGION_MEMBERS
from sleeper.serve.service import Service, check_writable

DELETE = Model(
    "Delete",
    {
        **OBJECT,
        "additionalProperties": False,
        "properties": {
            **REGION_MEMBERS,
            "all": {"type": "boolean", "description": "Deletes all rows of the table."},
            "id": {
                **TEXT,
                "minLength": 1,
                "description": "A repeated delete with the same id changes nothing. The default "
                "is a random id.",
            },
        },
    },
)
DELETED = Model(
    "Deleted",
    object_schema(
        {
            "number": {**COUNT, "description": "the transaction number of the delete"},
            "id": TEXT,
            "regions": {**COUNT, "description": "distinct regions"},
            "alreadyDone": {"type": "boolean"},
        }
    ),
)


async def delete_from_table(service: Service, request: Request) -> Response:
    """Deletes rows by key, range or region, in one transaction."""
    check_writable(service)
    raw = await json_body(request, service.limits.body_bytes_max)
    name, caller = request.path_params["name"], identify_caller(request)

    def work() -> Json:
        _check_access(service.instance, name, caller)
        regions = parse_delete(read_schema(service.instance, name), raw)
        result = delete_rows(service.instance, name, regions, raw.get("id"))
        return {
            "number": result.number,
            "id": result.id,
            "regions": result.regions,
            "alreadyDone": result.already_done,
        }

    return JSONResponse(await to_thread.run_sync(work))


def parse_delete(schema: Schema, raw: Mapping[str, Any]) -> tuple[Region, ...]:
    """Returns the regions of a `Delete` body.

    Raises `InvalidRequestError` with the name of the member that is wrong, and for a body that
    selects nothing.
    """
    check_members(raw, DELETE.members)
    text_member(raw, "id")
    return parse_deleted_regions(schema, raw)


def _check_access(instance: Instance, name: str, caller: str) -> None:
    """Raises an error of status 403 unless the caller may see all of the table."""
    table = instance.table(name)
    try:
        check_delete_access(table, (caller,))
    except InvalidRequestError as refusal:
        raise HTTPException(403, str(refusal)) from refusal
