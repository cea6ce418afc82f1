"""JSON responses: the result of work in a thread, and changes of a table."""

from collections.abc import Callable, Mapping
from typing import Any

from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sleeper.errors import InvalidRequestError
from sleeper.instance import OpenTable
from sleeper.json_members import check_members
from sleeper.serve.access import identify_caller
from sleeper.serve.bodies import json_body
from sleeper.serve.endpoint import Json, Model
from sleeper.serve.service import Service, check_writable

CheckAccess = Callable[[OpenTable, str], None]
"""Raises InvalidRequestError if the caller may not do it with the table."""


async def respond(work: Callable[[], Json], status: int = 200) -> Response:
    """Responds with the result of work in a thread."""
    return JSONResponse(await to_thread.run_sync(work), status)


async def change_table(
    service: Service,
    request: Request,
    model: Model,
    check_access: CheckAccess,
    work: Callable[[str, Mapping[str, Any]], Json],
) -> Response:
    """Responds with the result of work on the table's name and a body of the model.

    A read-only server, and a caller without access, get status 403.
    """
    check_writable(service)
    raw = await json_body(request, service.limits.body_bytes_max)
    name, caller = request.path_params["name"], identify_caller(request)

    def checked() -> Json:
        table = service.instance.table(name)
        try:
            check_access(table, caller)
        except InvalidRequestError as refusal:
            raise HTTPException(403, str(refusal)) from refusal
        check_members(raw, model.members)
        return work(name, raw)

    return await respond(checked)
