"""The endpoints that restore a version of a table, undo a job, and clone a table."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sleeper.admin.clone import clone_table
from sleeper.admin.versions import VersionChange, restore_table, undo_job
from sleeper.errors import InvalidRequestError
from sleeper.json_members import text_member
from sleeper.reports.access import check_version_access
from sleeper.serve.endpoint import COUNT, OBJECT, TEXT, Json, Model, object_schema
from sleeper.serve.json_answer import change_table
from sleeper.serve.rows import VERSION, parse_version_member
from sleeper.serve.service import Service

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

    def work(name: str, raw: Mapping[str, Any]) -> Json:
        to, restore_id = parse_version_member(raw, "to"), text_member(raw, "id")
        if to is None:
            raise InvalidRequestError('"to" is missing (expected a version)')
        result = restore_table(service.instance, name, to, restore_id)
        return {**_describe(result), "version": result.version}

    return await change_table(service, request, RESTORE, check_version_access, work)


async def undo(service: Service, request: Request) -> Response:
    """Takes back what an ingest or import added."""

    def work(name: str, raw: Mapping[str, Any]) -> Json:
        job_id, undo_id = _required_text(raw, "jobId"), text_member(raw, "id")
        return _describe(undo_job(service.instance, job_id, name, undo_id))

    return await change_table(service, request, UNDO, check_version_access, work)


async def clone(service: Service, request: Request) -> Response:
    """Creates a table on the files of a version of another."""

    def work(source: str, raw: Mapping[str, Any]) -> Json:
        name, as_of = _required_text(raw, "name"), parse_version_member(raw, "asOf")
        result = clone_table(service.instance, source, name, as_of)
        return {
            "name": result.name,
            "id": result.id,
            "version": result.version,
            "files": result.files,
            "bytes": result.bytes,
        }

    return await change_table(service, request, CLONE, check_version_access, work)


def _describe(result: VersionChange) -> Json:
    return {"number": result.number, "id": result.id, "alreadyDone": result.already_done}


def _required_text(raw: Mapping[str, Any], name: str) -> str:
    text = text_member(raw, name)
    if not text:
        raise InvalidRequestError(f'"{name}" is missing (expected text)')
    if not text.isprintable():
        raise InvalidRequestError(f'"{name}" is {text!r:.200} (expected printable characters)')
    return text
