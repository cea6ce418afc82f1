"""The catalog of Iceberg over HTTP, for readers: the routes of `sleeper serve` below `/iceberg`.

All tables that can be published are in one namespace. Where changes are accepted, loading a table
publishes its newest version first, so a reader sees what a query sees. Elsewhere nothing is
written, and a reader sees what was published last. Tables that restrict their callers are not
offered, because readers open the data files themselves.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Any

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError
from sleeper.iceberg.published import FoundMetadata, find_published
from sleeper.instance import Instance, OpenTable
from sleeper.properties.table import (
    FILTERS,
    ITERATOR_CLASS_NAME,
    QUERY_CALLERS,
)
from sleeper.serve.bodies import describe_problem

NAMESPACE = "sleeper"
"""The namespace of all tables."""
_PREFIX = "/iceberg/v1"
_TABLES = "/namespaces/{namespace}/tables"
_VIEWS = "/namespaces/{namespace}/views"
_ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
)
_READING = ("GET", "HEAD")
_CHANGING = ("POST", "PUT", "PATCH", "DELETE")

Json = dict[str, Any]


class _NotOfferedError(NotFoundError):
    """The catalog has no such namespace, table or view: `kind` is Iceberg's name of the error."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def catalog_routes(instance: Instance, accepts_changes: bool) -> Sequence[BaseRoute]:
    """Returns the routes of the catalog of an instance."""
    catalog = _Catalog(instance, accepts_changes)
    answers: dict[str, Callable[[Request], Json | None]] = {
        "/config": lambda _: {"defaults": {}, "overrides": {}, "endpoints": list(_ENDPOINTS)},
        "/namespaces": catalog.list_namespaces,
        "/namespaces/{namespace}": catalog.load_namespace,
        _TABLES: catalog.list_tables,
        f"{_TABLES}/{{table:path}}": catalog.load_table,
        _VIEWS: catalog.list_views,
        f"{_VIEWS}/{{view:path}}": catalog.load_view,
    }
    reading = [
        Route(f"{_PREFIX}{path}", _endpoint(answer), methods=_READING)
        for path, answer in answers.items()
    ]
    refusing = Route(f"{_PREFIX}/{{path:path}}", _endpoint(_refuse), methods=_CHANGING)
    return [*reading, refusing]


def _endpoint(answer: Callable[[Request], Json | None]) -> Any:
    async def respond(request: Request) -> Response:
        try:
            body = await to_thread.run_sync(answer, request)
        except SleeperError as error:
            return _problem(error)
        if request.method == "HEAD":
            return Response(status_code=HTTPStatus.NO_CONTENT)
        return _json(body, HTTPStatus.OK)

    return respond


def _refuse(request: Request) -> None:
    raise InvalidRequestError(
        f"the catalog is read-only: {request.method} is refused (expected changes by the commands "
        "and the API of Sleeper)"
    )


def _problem(error: SleeperError) -> Response:
    status, _ = describe_problem(error)
    kind = "BadRequestException" if status is HTTPStatus.BAD_REQUEST else type(error).__name__
    if isinstance(error, _NotOfferedError):
        kind = error.kind
    body = {"error": {"message": str(error), "type": kind, "code": status.value}}
    return _json(body, status)


def _json(body: object, status: HTTPStatus) -> Response:
    content = json.dumps(body, separators=(",", ":"))
    return Response(content, status, media_type="application/json")


class _Catalog:
    """The answers of the catalog. Each takes a request and returns JSON."""

    def __init__(self, instance: Instance, publishes: bool) -> None:
        self._instance = instance
        self._publishes = publishes

    def list_namespaces(self, request: Request) -> Json:
        is_root = not request.query_params.get("parent")
        return {"namespaces": [[NAMESPACE]] if is_root else []}

    def load_namespace(self, request: Request) -> Json:
        _check_namespace(request)
        return {"namespace": [NAMESPACE], "properties": {}}

    def list_tables(self, request: Request) -> Json:
        _check_namespace(request)
        tables = (OpenTable(self._instance, ref) for ref in self._instance.tables.index.list())
        return {"identifiers": _identifiers(t.ref.name for t in tables if _is_offered(t))}

    def list_views(self, request: Request) -> Json:
        _check_namespace(request)
        return {"identifiers": []}

    def load_view(self, request: Request) -> None:
        _check_namespace(request)
        name = request.path_params["view"]
        raise _NotOfferedError("NoSuchViewException", f"no view {name!r}: there are none")

    def load_table(self, request: Request) -> Json | None:
        _check_namespace(request)
        table = self._find(request.path_params["table"])
        if request.method == "HEAD":
            return None
        url, metadata = self._publish(table) if self._publishes else find_published(table)
        return {"metadata-location": url, "metadata": metadata, "config": _storage(table)}

    def _publish(self, table: OpenTable) -> FoundMetadata:
        from sleeper.iceberg.service import publish_table

        published = publish_table(table)
        return FoundMetadata(published.metadata_url, published.metadata)

    def _find(self, name: str) -> OpenTable:
        try:
            table = self._instance.table(name)
        except NotFoundError as error:
            raise _NotOfferedError("NoSuchTableException", str(error)) from error
        if not _is_offered(table):
            raise _NotOfferedError(
                "NoSuchTableException",
                f"table {name!r} is not offered: it restricts its callers, or has rows that are "
                "made when they are read",
            )
        return table


def _check_namespace(request: Request) -> None:
    name = request.path_params["namespace"]
    if name != NAMESPACE:
        raise _NotOfferedError(
            "NoSuchNamespaceException", f"no namespace {name!r} (expected {NAMESPACE!r})"
        )


def _identifiers(names: Iterable[str]) -> list[Json]:
    return [{"namespace": [NAMESPACE], "name": name} for name in sorted(names)]


def _is_offered(table: OpenTable) -> bool:
    properties = table.properties()
    makes_rows = bool(properties.get(FILTERS)) or properties.get(ITERATOR_CLASS_NAME) is not None
    is_restricted = bool(properties.get(QUERY_CALLERS))
    return not makes_rows and not is_restricted


def _storage(table: OpenTable) -> dict[str, str]:
    """Returns where readers find the buckets. They bring credentials of their own."""
    config: dict[str, str] = {}
    for bucket in table.instance.storage.root.buckets:
        if bucket.region:
            config |= {"s3.region": bucket.region, "client.region": bucket.region}
        if bucket.server:
            config |= {"s3.endpoint": bucket.server, "s3.path-style-access": "true"}
    return config
