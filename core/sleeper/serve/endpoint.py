"""Endpoints of the HTTP API: one declaration for the route and for its OpenAPI description."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp

from sleeper.serve.service import Service

Json = dict[str, Any]

TEXT: Json = {"type": "string"}
COUNT: Json = {"type": "integer", "minimum": 0}
POSITIVE: Json = {"type": "integer", "minimum": 1}
OBJECT: Json = {"type": "object"}


@dataclass(frozen=True, slots=True)
class Model:
    """A JSON object in a request or response: its name and JSON schema in the OpenAPI document."""

    name: str
    schema: Json

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the declared members."""
        return tuple(self.schema["properties"])


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter in the path or the query string."""

    name: str
    description: str
    place: str = "query"
    schema: Json | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An operation of the API.

    `name` is its OpenAPI operation id, `path` has Starlette's syntax. `response` is the model
    of a successful response; `None` stands for rows in a format that the client chooses.
    `errors` are the statuses of errors besides those of every endpoint. `row_types` are the media
    types of a body of rows.
    """

    method: str
    path: str
    name: str
    summary: str
    handle: Callable[[Service, Request], Awaitable[ASGIApp]]
    response: Model | None
    errors: tuple[int, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    body: Model | None = None
    status: int = 200
    row_types: tuple[str, ...] = ()

    def make_route(self, service: Service) -> Route:
        """Returns the Starlette route of the endpoint."""
        handle = partial(self.handle, service)
        return Route(self.path, handle, methods=[self.method], name=self.name)


def object_schema(required: Json, optional: Json | None = None, text: str | None = None) -> Json:
    """Returns the JSON schema of an object with these members."""
    description = {"description": text} if text else {}
    properties = {**required, **(optional or {})}
    return {**OBJECT, **description, "required": list(required), "properties": properties}


def list_schema(items: Json, text: str | None = None) -> Json:
    """Returns the JSON schema of a list."""
    return {"type": "array", "items": items, **({"description": text} if text else {})}
