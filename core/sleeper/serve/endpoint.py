"""Endpoints of the HTTP API: one declaration for the route and for its OpenAPI description."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, overload

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance, OpenTable
from sleeper.json_codec import camel_case
from sleeper.json_members import check_members
from sleeper.reports.access import check_history_access
from sleeper.serve.access import CheckAccess, TableAccess, identify_caller, open_table
from sleeper.serve.bodies import json_body
from sleeper.serve.schema import Json, Model, ResponseModel, response_model
from sleeper.serve.service import Service, check_writable

_DIGITS_MAX = 19
_PATH_PARAMETERS = {"name": "The name of a table.", "id": "The id of a query."}

Handler = Callable[[Service, Request], Awaitable[ASGIApp]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter in the path or the query string."""

    name: str
    description: str
    location: str = "query"
    schema: Json | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An operation of the API.

    `path` has Starlette's syntax. `response` is the model of a successful response; `None` stands
    for rows in a format that the client chooses. `name` is the OpenAPI operation id, by default the
    name of the handler. `errors` are the statuses of errors besides those of every endpoint.
    `row_types` are the media types of a body of rows.
    """

    method: str
    path: str
    response: Model | None = None
    name: str = ""
    errors: tuple[int, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    body: Model | None = None
    status: int = 200
    row_types: tuple[str, ...] = ()
    summary: str = ""
    handle: Handler | None = None

    def make_route(self, service: Service) -> Route:
        """Returns the Starlette route of the endpoint."""
        assert self.handle is not None
        handle = partial(self.handle, service)
        return Route(self.path, handle, methods=[self.method], name=self.name)


def endpoint(method: str, path: str, **declared: Any) -> Callable[[Handler], Endpoint]:
    """Turns a handler into an `Endpoint`, whose summary in the document is the docstring."""
    names = re.findall(r"{(\w+)", path)
    in_path = [Parameter(each, _PATH_PARAMETERS[each], "path") for each in names]
    parameters = (*in_path, *declared.pop("parameters", ()))

    def decorate(handle: Handler) -> Endpoint:
        declared.setdefault("name", camel_case(handle.__name__))
        summary = " ".join((handle.__doc__ or "").split())
        return Endpoint(
            method, path, parameters=parameters, summary=summary, handle=handle, **declared
        )

    return decorate


@dataclass(frozen=True, slots=True)
class Call:
    """A request, and the members of its body."""

    service: Service
    request: Request
    raw: Mapping[str, Any]

    @property
    def instance(self) -> Instance:
        """The instance that is served."""
        return self.service.instance

    @property
    def name(self) -> str:
        """The name of a table in the path."""
        name: str = self.request.path_params["name"]
        return name

    @property
    def caller(self) -> str:
        """The caller, which restricts what the request may see or change."""
        return identify_caller(self.request)

    def read_table(self) -> OpenTable:
        """Returns the table in the path, if the caller may see all of it."""
        table = self.instance.table(self.name)
        check_history_access(table, self.caller)
        return table


Work = Callable[[Call], object]


def answers(method: str, path: str, response: Any, **declared: Any) -> Callable[[Work], Endpoint]:
    """Turns a function into an endpoint that responds with the members of the object it returns.

    `response` is a dataclass or a model, and the object has its fields. The function runs in a
    thread.
    """
    return _json_endpoint(method, path, response, declared, is_change=False, check_access=None)


def changes(
    path: str,
    response: Any,
    check_access: CheckAccess | None = None,
    method: str = "POST",
    errors: tuple[int, ...] = (400, 404, 409, 413, 415, 503),
    **declared: Any,
) -> Callable[[Work], Endpoint]:
    """Turns a function into an endpoint as `answers` does, for changes of the table in the path.

    A read-only server, and a caller without access, get status 403.
    """
    declared["errors"] = errors
    return _json_endpoint(method, path, response, declared, True, check_access)


def _json_endpoint(
    method: str,
    path: str,
    response: Any,
    declared: dict[str, Any],
    is_change: bool,
    check_access: CheckAccess | None,
) -> Callable[[Work], Endpoint]:
    model = response if isinstance(response, ResponseModel) else response_model(response)
    body = declared.get("body")

    def decorate(work: Work) -> Endpoint:
        @wraps(work)
        async def handle(service: Service, request: Request) -> Response:
            if is_change:
                check_writable(service)
            raw = {} if body is None else await json_body(request, service.limits.body_bytes_max)
            call = Call(service, request, raw)

            def run() -> Json:
                if check_access is not None:
                    open_table(call.instance, TableAccess(call.name, call.caller), check_access)
                if body is not None and body.is_closed:
                    check_members(raw, body.members)
                return model.codec.to_json(work(call))

            return JSONResponse(await to_thread.run_sync(run), declared.get("status", 200))

        return endpoint(method, path, response=model, **declared)(handle)

    return decorate


@overload
def number_parameter(request: Request, name: str) -> int | None: ...
@overload
def number_parameter(request: Request, name: str, default: int) -> int: ...
def number_parameter(request: Request, name: str, default: int | None = None) -> int | None:
    """Returns a parameter that is a number, or the default if it is missing."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < _DIGITS_MAX):
        raise InvalidRequestError(
            f'"{name}" must be an integer of less than {_DIGITS_MAX} digits, not {text[:200]!r}'
        )
    return int(text)


def flag_parameter(request: Request, name: str) -> bool:
    """Returns whether a parameter is true, false if it is missing."""
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise InvalidRequestError(f'"{name}" must be true or false, not {text[:200]!r}')
    return text == "true"
