"""The endpoint that deletes rows of a table."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sleeper.deletion.keys import delete_rows
from sleeper.deletion.message import parse_deleted_regions
from sleeper.deletion.service import check_delete_access
from sleeper.instance import OpenTable
from sleeper.json_members import text_member
from sleeper.query.service import read_schema
from sleeper.serve.endpoint import COUNT, OBJECT, TEXT, Json, Model, object_schema
from sleeper.serve.json_answer import change_table
from sleeper.serve.regions import REGION_MEMBERS
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

    def work(name: str, raw: Mapping[str, Any]) -> Json:
        delete_id = text_member(raw, "id")
        regions = parse_deleted_regions(read_schema(service.instance, name), raw)
        result = delete_rows(service.instance, name, regions, delete_id)
        return {
            "number": result.number,
            "id": result.id,
            "regions": result.regions,
            "alreadyDone": result.already_done,
        }

    return await change_table(service, request, DELETE, _check_access, work)


def _check_access(table: OpenTable, caller: str) -> None:
    check_delete_access(table, (caller,))
