"""The endpoints that restore a version of a table, undo a job, and clone a table."""

from collections.abc import Callable, Mapping
from typing import Any

from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sleeper.admin.clone import clone_table
from sleeper.admin.versions import VersionChange, restore_table, undo_job
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.json_members import check_members, text_member
from sleeper.reports.access import check_version_access
from sleeper.serve.access import identify_caller
from sleeper.serve.bodies import json_body
from sleeper.serve.endpoint import COUNT, OBJECT, TEXT, Json, Model, object_schema
from sleeper.serve.rows import VERSION, parse_version_member
from sleeper.serve.service import Service, check_writable

_ID: Json = {
    **TEXT,
    "minLength": 1,
    "description": "A repeated request with the same id changes nothing. The default is a random "
    "id.",
}
_NUMBER: Json = {"type": ["integer", "null"], "minimum": 0}
_CHANGED: Json = {
    "number": {**_NUMBER, "description": "the transaction number; null if nothing was left to do"},
    "id": TEXT,
    "alreadyDone": {"type": "boolean"},
}


def _body(name: str, required: Json, optional: Json) -> Model:
    return Model(
        name, {**object_schema(required, optional), **OBJECT, "additionalProperties": False}
    )


RESTORE = _body("Restore", {"to": VERSION}, {"id": _ID})
RESTORED = Model(
    "Restored",
    object_schema(
        {
            **_CHANGED,
            "version": {
                **_NUMBER,
                "description": "the version that was restored; null if an earlier request with the "
                "id chose it by time",
            },
        }
    ),
)
UNDO = _body("Undo", {"jobId": {**TEXT, "minLength": 1}}, {"id": _ID})
UNDONE = Model("Undone", object_schema(_CHANGED))
CLONE = _body("Clone", {"name": {**TEXT, "minLength": 1}}, {"asOf": VERSION})
CLONED = Model(
    "Cloned",
    object_schema(
        {
            "name": TEXT,
            "id": TEXT,
            "version": {**COUNT, "description": "the version of the source"},
            "files": COUNT,
            "bytes": COUNT,
        }
    ),
)


async def restore(service: Service, request: Request) -> Response:
    """Makes the rows of a version those of the newest version."""

    def work(raw: Mapping[str, Any]) -> Json:
        to, restore_id = parse_version_member(raw, "to"), text_member(raw, "id")
        if to is None:
            raise InvalidRequestError('"to" is missing (expected a version)')
        result = restore_table(service.instance, request.path_params["name"], to, restore_id)
        return {**_describe(result), "version": result.version}

    return await _change(service, request, RESTORE, work)


async def undo(service: Service, request: Request) -> Response:
    """Takes back what an ingest or import added."""

    def work(raw: Mapping[str, Any]) -> Json:
        job_id, undo_id = _required_text(raw, "jobId"), text_member(raw, "id")
        name = request.path_params["name"]
        return _describe(undo_job(service.instance, job_id, name, undo_id))

    return await _change(service, request, UNDO, work)


async def clone(service: Service, request: Request) -> Response:
    """Creates a table on the files of a version of another."""

    def work(raw: Mapping[str, Any]) -> Json:
        name, as_of = _required_text(raw, "name"), parse_version_member(raw, "asOf")
        result = clone_table(service.instance, request.path_params["name"], name, as_of)
        return {
            "name": result.name,
            "id": result.id,
            "version": result.version,
            "files": result.files,
            "bytes": result.bytes,
        }

    return await _change(service, request, CLONE, work)


async def _change(
    service: Service, request: Request, model: Model, work: Callable[[Mapping[str, Any]], Json]
) -> Response:
    """Responds with the result of work on the body, for callers who may see all of the table."""
    check_writable(service)
    raw = await json_body(request, service.limits.body_bytes_max)
    name, caller = request.path_params["name"], identify_caller(request)

    def checked() -> Json:
        _check_access(service.instance, name, caller)
        check_members(raw, model.members)
        return work(raw)

    return JSONResponse(await to_thread.run_sync(checked))


def _check_access(instance: Instance, name: str, caller: str) -> None:
    """Raises an error of status 403 unless the caller may see all of the table."""
    table = instance.table(name)
    try:
        check_version_access(table, caller)
    except InvalidRequestError as refusal:
        raise HTTPException(403, str(refusal)) from refusal


def _describe(result: VersionChange) -> Json:
    return {"number": result.number, "id": result.id, "alreadyDone": result.already_done}


def _required_text(raw: Mapping[str, Any], name: str) -> str:
    text = text_member(raw, name)
    if not text:
        raise InvalidRequestError(f'"{name}" is missing (expected text)')
    if not text.isprintable():
        raise InvalidRequestError(f'"{name}" is {text!r:.200} (expected printable characters)')
    return text
