"""The endpoint that deletes rows of a table."""

from collections.abc import Mapping
from typing import Any

from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sleeper.deletion.service import delete_rows
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.partitions.region import Region, whole_region
from sleeper.processing.restriction import NO_RESTRICTION
from sleeper.query.service import read_schema, restrict_caller
from sleeper.schema.model import Schema
from sleeper.serve.access import identify_caller
from sleeper.serve.bodies import check_members, json_body, text_member
from sleeper.serve.endpoint import COUNT, OBJECT, TEXT, Json, Model, object_schema
from sleeper.serve.regions import REGION_MEMBERS, parse_regions
from sleeper.serve.service import Service

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
    if service.read_only_reason is not None:
        raise HTTPException(403, service.read_only_reason)
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
    selects nothing: deleting all rows requires `"all": true`.
    """
    check_members(raw, DELETE.members)
    text_member(raw, "id")
    every_row = raw.get("all")
    if every_row is not None and not isinstance(every_row, bool):
        raise InvalidRequestError(f'"all" must be true or false, not {every_row!r:.200}')
    regions = parse_regions(schema, raw)
    if every_row and regions is not None:
        raise InvalidRequestError('"all" deletes all rows (expected no keys, ranges or regions)')
    if not every_row and not regions:
        raise InvalidRequestError(
            'no rows to delete (expected "keys", "ranges" or "regions", or "all": true for all '
            "rows)"
        )
    return regions or (whole_region(schema),)


def _check_access(instance: Instance, name: str, caller: str) -> None:
    """Raises an error of status 403 unless the caller may see all of the table.

    A caller who sees a part of the rows could delete the others, or learn of them.
    """
    table = instance.table(name)
    try:
        is_restricted = restrict_caller(table, caller) != NO_RESTRICTION
    except InvalidRequestError as refusal:
        raise HTTPException(403, str(refusal)) from refusal
    if is_restricted:
        raise HTTPException(
            403,
            f"caller {caller!r} may not see all of table {name!r} "
            "(deletes require unrestricted access)",
        )
