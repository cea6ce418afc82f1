"""The endpoints that list and expire the versions of a snapshot table."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sleeper.garbage_collection.service import expire_table_versions
from sleeper.json_members import boolean_member
from sleeper.reports.access import check_history_access, check_version_access
from sleeper.reports.output import json_rows
from sleeper.reports.snapshot_versions import describe_expiry, gather_snapshot_versions
from sleeper.serve.access import identify_caller
from sleeper.serve.endpoint import COUNT, OBJECT, TEXT, Json, Model, list_schema, object_schema
from sleeper.serve.json_answer import change_table, respond
from sleeper.serve.service import Service

_OPTIONAL_TEXT: Json = {"type": ["string", "null"]}
_VERSION = object_schema(
    {
        "version": {**COUNT, "description": "the transaction that published it, for `asOf`"},
        "publishedAt": TEXT,
        "load": _OPTIONAL_TEXT,
        "rows": COUNT,
        "bytes": COUNT,
        "files": COUNT,
        "expiresAt": {
            **_OPTIONAL_TEXT,
            "description": "null if the version stays until a load replaces it",
        },
        "heldBy": _OPTIONAL_TEXT,
    }
)
VERSIONS = Model("SnapshotVersions", object_schema({"versions": list_schema(_VERSION)}))
EXPIRE = Model(
    "ExpireSnapshots",
    {
        **OBJECT,
        "additionalProperties": False,
        "properties": {
            "dryRun": {"type": "boolean", "description": "Only lists the versions."},
        },
    },
)
EXPIRED = Model("ExpiredSnapshots", object_schema({"expired": list_schema(_VERSION)}))


async def snapshot_versions(service: Service, request: Request) -> Response:
    """Responds with the versions of a snapshot table, if the caller may see all of it."""
    name, caller = request.path_params["name"], identify_caller(request)

    def work() -> Json:
        table = service.instance.table(name)
        check_history_access(table, caller)
        return {"versions": list(json_rows(gather_snapshot_versions(table).listing()))}

    return await respond(work)


async def expire_snapshots(service: Service, request: Request) -> Response:
    """Expires the versions of a snapshot table that its properties do not keep."""

    def work(name: str, raw: Mapping[str, Any]) -> Json:
        dry_run = boolean_member(raw, "dryRun")
        report = expire_table_versions(service.instance, name, dry_run)
        return {"expired": list(json_rows(describe_expiry(name, report, dry_run)))}

    return await change_table(service, request, EXPIRE, check_version_access, work)
