"""The endpoints that describe the contents of a table: partitions, files, followers and holds."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from sleeper.instance import OpenTable
from sleeper.partitions.partition import PartitionId
from sleeper.reports.access import check_history_access
from sleeper.reports.output import json_rows
from sleeper.reports.partition_sizes import list_partition_sizes
from sleeper.reports.tables import gather_state, list_files
from sleeper.serve.access import identify_caller
from sleeper.serve.endpoint import (
    COUNT,
    OBJECT,
    TEXT,
    Json,
    Model,
    Parameter,
    list_schema,
    object_schema,
)
from sleeper.serve.json_answer import respond
from sleeper.serve.parameters import number_parameter
from sleeper.serve.service import Service

_PARTITIONS_DEFAULT = 500
_FILES_DEFAULT = 100
_PARTITION: Json = {
    "partition": TEXT,
    "keys": {**TEXT, "description": "bounds that its parent does not have"},
    "parent": {"type": ["string", "null"]},
    "leaf": {"type": "boolean"},
    **dict.fromkeys(("depth", "children", "leaves", "rows", "bytes", "references"), COUNT),
    "ownRows": COUNT,
    "ownReferences": COUNT,
    "region": OBJECT,
}
_FILE: Json = {
    "file": TEXT,
    "partitions": list_schema(TEXT),
    "rows": COUNT,
    "bytes": COUNT,
    "smallest_key": {"type": "array"},
    "largest_key": {"type": "array"},
}
_FOLLOWER: Json = {"follower": TEXT, "start": COUNT, "position": COUNT, "lag": COUNT, "lost": COUNT}
_HOLD: Json = {"hold": TEXT, "owner": TEXT, "version": COUNT, "expires": TEXT}
PARTITIONS = Model(
    "Partitions",
    object_schema(
        {
            "partitions": {**COUNT, "description": "partitions at or below the root"},
            "leaves": COUNT,
            "tree": list_schema(
                object_schema(_PARTITION),
                "Level by level. Sizes include the partitions below, unless they are `own`.",
            ),
        }
    ),
)
FILES = Model(
    "Files",
    object_schema({"total": COUNT, "files": list_schema(object_schema(_FILE), "oldest first")}),
)
FOLLOWERS = Model(
    "Followers",
    object_schema(
        {
            "version": COUNT,
            "followers": list_schema(object_schema(_FOLLOWER)),
            "holds": list_schema(object_schema(_HOLD)),
        }
    ),
)
PARTITION_PARAMETERS = (
    Parameter("root", "The partition to begin with, instead of the root of the table."),
    Parameter("limit", "The maximum number of partitions.", schema=COUNT),
)
FILE_PARAMETERS = (
    Parameter("offset", "The number of files to skip.", schema=COUNT),
    Parameter("limit", "The maximum number of files.", schema=COUNT),
)


async def table_partitions(service: Service, request: Request) -> Response:
    """Responds with the partition tree and its sizes, the upper levels of a large tree only."""
    limit = number_parameter(request, "limit", _PARTITIONS_DEFAULT)

    def read(table: OpenTable) -> Json:
        listing, totals = list_partition_sizes(table.state, table.ref.name, limit, _root(request))
        return {**totals, "tree": list(json_rows(listing))}

    return await _describe(service, request, read)


def _root(request: Request) -> PartitionId | None:
    root = request.query_params.get("root")
    return None if root is None else PartitionId(root)


async def table_files(service: Service, request: Request) -> Response:
    """Responds with a page of the files of a table."""
    limit = number_parameter(request, "limit", _FILES_DEFAULT)
    offset = number_parameter(request, "offset", 0)

    def read(table: OpenTable) -> Json:
        listing = list_files(table.state, table.ref.name, limit, offset)
        with table.state.reading() as state:
            total = state.files.totals().files
        return {"total": total, "files": list(json_rows(listing))}

    return await _describe(service, request, read)


async def table_followers(service: Service, request: Request) -> Response:
    """Responds with the readers of changes and the holds of a table."""

    def read(table: OpenTable) -> Json:
        report = gather_state(table.state, table.ref.name)
        return {
            "version": report.number,
            "followers": list(json_rows(report.followers_listing())),
            "holds": list(json_rows(report.holds_listing())),
        }

    return await _describe(service, request, read)


async def _describe(
    service: Service, request: Request, read: Callable[[OpenTable], Json]
) -> Response:
    """Responds with what `read` returns of the table, if the caller may see all of it."""
    name, caller = request.path_params["name"], identify_caller(request)

    def work() -> Json:
        table = service.instance.table(name)
        check_history_access(table, caller)
        return read(table)

    return await respond(work)
