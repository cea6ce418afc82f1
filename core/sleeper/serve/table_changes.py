"""The endpoints that change tables and their rows, each in one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sleeper.admin import clone, table_requests, tables, versions
from sleeper.admin.clone import CloneResult
from sleeper.admin.properties import change_table_properties
from sleeper.admin.table_requests import create_requested_table, describe_refusal, property_members
from sleeper.admin.versions import VersionChange
from sleeper.deletion.keys import delete_rows
from sleeper.deletion.message import parse_deleted_regions
from sleeper.deletion.service import DeleteResult, check_delete_access
from sleeper.errors import InvalidRequestError
from sleeper.garbage_collection.service import expire_table_versions
from sleeper.instance import OpenTable
from sleeper.json_members import boolean_member, text_member
from sleeper.query.service import read_schema
from sleeper.reports.access import check_version_access, check_write_access
from sleeper.reports.output import json_rows
from sleeper.reports.snapshot_versions import describe_expiry
from sleeper.serve.bodies import describe_problem, json_body
from sleeper.serve.endpoint import Call, changes, endpoint
from sleeper.serve.rows import REGION_MEMBERS, VERSION, parse_version_member
from sleeper.serve.schema import (
    FLAG,
    OBJECT,
    TEXT,
    Json,
    Model,
    Rows,
    Schema,
    list_schema,
    model_of,
    object_schema,
    request_model,
)
from sleeper.serve.service import Service, check_writable
from sleeper.serve.tables import VERSION_ROWS
from sleeper.tables import TableRef

_NOT_EMPTY: Json = {**TEXT, "minLength": 1}
_ID: Json = {
    **_NOT_EMPTY,
    "description": "A repeated request with the same id changes nothing. The default is a random "
    "id.",
}
_VALUES: Json = {**OBJECT, "additionalProperties": TEXT, "description": "by the properties' names"}
_SCHEMA: Json = {**OBJECT, "description": "schema JSON"}
_SPLIT_POINTS = list_schema(
    {"type": ["string", "integer"]}, "values of the first row key field, ascending"
)


@changes(
    "/tables",
    model_of(TableRef, "Created", "name id"),
    errors=(400, 409, 413, 415),
    body=request_model(
        "NewTable",
        {"name": TEXT, "schema": _SCHEMA},
        {"properties": _VALUES, "splitPoints": _SPLIT_POINTS},
    ),
    status=201,
)
def create_table(call: Call) -> TableRef:
    """Creates a table. A read-only server answers 403."""
    name = text_member(call.raw, "name")
    if name is None:
        raise InvalidRequestError('"name" is missing (expected the name of a new table)')
    return create_requested_table(call.instance, name, call.raw, property_members(call.raw))


@endpoint(
    "POST",
    "/sleeper/tables",
    name="addTable",
    response=Model("AddedTable", object_schema({"tableId": TEXT, "tableName": TEXT}, {})),
    errors=(400, 409, 413, 415),
    body=Model(
        "AddTable",
        object_schema({"properties": _VALUES, "schema": _SCHEMA, "splitPoints": _SPLIT_POINTS}, {}),
    ),
    status=201,
)
async def add_table_as_gchq(service: Service, request: Request) -> Response:
    """Creates a table by a request of gchq/sleeper's REST API, and answers as that does."""
    try:
        check_writable(service)
        raw = await json_body(request, service.limits.body_bytes_max)
    except HTTPException as error:
        status, answer = describe_refusal(HTTPStatus(error.status_code), error.detail)
    except InvalidRequestError as error:
        status, problem = describe_problem(error)
        status, answer = describe_refusal(status, problem["reason"])
    else:
        create = table_requests.add_table_as_gchq
        status, answer = await to_thread.run_sync(create, service.instance, raw)
    return JSONResponse(answer, status)


@dataclass(frozen=True, slots=True)
class Changed:
    """A table whose properties were set."""

    name: str
    online: bool
    properties: Annotated[Mapping[str, str], Schema("those of the request, now")]
    warnings: Sequence[str]


@changes(
    "/tables/{name}",
    Changed,
    check_write_access,
    method="PATCH",
    errors=(400, 404, 409, 413, 415),
    body=request_model(
        "TableChanges",
        {},
        {
            "properties": {**_VALUES, "description": "Empty text unsets a property."},
            "online": {**FLAG, "description": "Offline tables are not compacted."},
        },
    ),
)
def change_table(call: Call) -> Changed:
    """Sets properties of a table, or puts it online or offline. A read-only server answers 403."""
    values = property_members(call.raw)
    has_online = call.raw.get("online") is not None
    if not values and not has_online:
        raise InvalidRequestError('no changes (expected "properties" or "online")')
    is_online = boolean_member(call.raw, "online")
    warnings: tuple[str, ...] = ()
    if values:
        report = change_table_properties(call.instance, call.name, values)
        warnings = report.warnings
        values = {each: report.after.value(each) for each in values}
    if has_online:
        tables.set_online(call.instance, call.name, is_online)
    ref = call.instance.table(call.name).ref
    return Changed(ref.name, ref.online, values, warnings)


@changes(
    "/tables/{name}",
    model_of(TableRef, "DeletedTable", "name id"),
    check_write_access,
    method="DELETE",
    errors=(400, 404),
)
def delete_table(call: Call) -> TableRef:
    """Deletes a table, which can be undeleted for a time. A read-only server answers 403."""
    ref = call.instance.table(call.name).ref
    tables.delete_table(call.instance, ref.name)
    return ref


def _check_delete_access(table: OpenTable, caller: str) -> None:
    check_delete_access(table, (caller,))


@changes(
    "/tables/{name}/delete",
    model_of(
        DeleteResult,
        "Deleted",
        "number id regions already_done",
        number=Schema("the transaction number of the delete", type="integer"),
        regions=Schema("distinct regions"),
    ),
    _check_delete_access,
    body=request_model(
        "Delete",
        {},
        {
            **REGION_MEMBERS,
            "all": {**FLAG, "description": "Deletes all rows of the table."},
            "id": {
                **_NOT_EMPTY,
                "description": "A repeated delete with the same id changes nothing. The default is "
                "a random id.",
            },
        },
    ),
)
def delete_from_table(call: Call) -> DeleteResult:
    """Deletes the rows of a table in any of the keys, ranges and regions, in one transaction.

    A read-only server, such as the one on AWS, answers 403.
    """
    delete_id = text_member(call.raw, "id")
    regions = parse_deleted_regions(read_schema(call.instance, call.name), call.raw)
    return delete_rows(call.instance, call.name, regions, delete_id)


_CHANGE = Schema("the transaction number; null if nothing was left to do")


@changes(
    "/tables/{name}/restore",
    model_of(
        VersionChange,
        "Restored",
        "number id already_done version",
        number=_CHANGE,
        version=Schema(
            "the version that was restored; null if an earlier request with the id chose it by time"
        ),
    ),
    check_version_access,
    body=request_model("Restore", {"to": VERSION}, {"id": _ID}),
)
def restore_table(call: Call) -> VersionChange:
    """Makes the rows of a version those of the newest version, in one transaction.

    A read-only server answers 403.
    """
    to, restore_id = parse_version_member(call.raw, "to"), text_member(call.raw, "id")
    if to is None:
        raise InvalidRequestError('"to" is missing (expected a version)')
    return versions.restore_table(call.instance, call.name, to, restore_id)


@changes(
    "/tables/{name}/undo",
    model_of(VersionChange, "Undone", "number id already_done", number=_CHANGE),
    check_version_access,
    body=request_model("Undo", {"jobId": _NOT_EMPTY}, {"id": _ID}),
)
def undo_job(call: Call) -> VersionChange:
    """Takes back what an ingest or import added to a table, in one transaction.

    A read-only server answers 403.
    """
    job_id, undo_id = _required_text(call.raw, "jobId"), text_member(call.raw, "id")
    return versions.undo_job(call.instance, job_id, call.name, undo_id)


@changes(
    "/tables/{name}/clone",
    model_of(
        CloneResult,
        "Cloned",
        "name id version files bytes",
        version=Schema("the version of the source"),
    ),
    check_version_access,
    body=request_model("Clone", {"name": _NOT_EMPTY}, {"asOf": VERSION}),
)
def clone_table(call: Call) -> CloneResult:
    """Creates a table on the files of a version of another, without copying data.

    A read-only server answers 403.
    """
    name, as_of = _required_text(call.raw, "name"), parse_version_member(call.raw, "asOf")
    return clone.clone_table(call.instance, call.name, name, as_of)


@dataclass(frozen=True, slots=True)
class ExpiredSnapshots:
    """Versions of a snapshot table that expired, or would."""

    expired: Annotated[Rows, VERSION_ROWS]


@changes(
    "/tables/{name}/snapshots/expire",
    ExpiredSnapshots,
    check_version_access,
    body=request_model(
        "ExpireSnapshots",
        {},
        {"dryRun": {**FLAG, "description": "Only lists the versions."}},
    ),
)
def expire_snapshots(call: Call) -> ExpiredSnapshots:
    """Expires the versions of a snapshot table that its properties and holds do not keep.

    A read-only server answers 403.
    """
    dry_run = boolean_member(call.raw, "dryRun")
    report = expire_table_versions(call.instance, call.name, dry_run)
    return ExpiredSnapshots([*json_rows(describe_expiry(call.name, report, dry_run))])


def _required_text(raw: Mapping[str, Any], name: str) -> str:
    text = text_member(raw, name)
    if not text:
        raise InvalidRequestError(f'"{name}" is missing (expected text)')
    if not text.isprintable():
        raise InvalidRequestError(f'"{name}" is {text!r:.200} (expected printable characters)')
    return text
