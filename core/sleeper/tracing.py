"""Spans of OpenTelemetry around requests, queries, ingests, jobs and commits.

Spans are recorded if the process has a tracer provider: that of the application, or the one that
`workers.trace_exporter` sets. Otherwise `opentelemetry` is not imported, and a span costs a look
into `sys.modules`. Attributes are named after OpenTelemetry's semantic conventions, those of this
package `sleeper.*`.
"""

import sys
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from opentelemetry import trace

_API = "opentelemetry.trace"
_SYSTEM = "sleeper"
_METHODS = frozenset(
    {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"}
)
# What follows the end of an iterator or a generator is not an error.
_ENDS = (StopIteration, GeneratorExit)

AttributeValue = str | bool | int | float | Sequence[str]


class Span:
    """A span that is not recorded. Its block, or `end` after `keep`, ends it."""

    __slots__ = ()
    is_recorded = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Ends the span, with the error of the block."""

    def set(self, name: str, value: AttributeValue) -> None:
        """Sets an attribute."""

    def set_response(self, status: int) -> None:
        """Sets the HTTP status of the response. From 500, the span has failed."""

    def keep(self) -> Self:
        """Leaves the span open after its block, unless the block raises an error."""
        return self

    def end(self, error: BaseException | None = None) -> None:
        """Ends the span and records the error. Idempotent: the first call counts."""


class _RecordedSpan(Span):
    __slots__ = ("_is_kept", "_span", "_token")
    is_recorded = True

    def __init__(self, span: "trace.Span") -> None:
        self._span = span
        self._token: Any = None
        self._is_kept = False

    def __enter__(self) -> Self:
        from opentelemetry import context, trace

        self._token = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        from opentelemetry import context

        context.detach(self._token)
        if error is not None or not self._is_kept:
            self.end(error)

    def set(self, name: str, value: AttributeValue) -> None:
        if self._span.is_recording():
            self._span.set_attribute(name, value)

    def set_response(self, status: int) -> None:
        self.set("http.response.status_code", status)
        if status >= 500:
            self._fail(str(status))

    def keep(self) -> Self:
        self._is_kept = True
        return self

    def end(self, error: BaseException | None = None) -> None:
        if not self._span.is_recording():
            return
        if error is not None and not isinstance(error, _ENDS):
            self._span.record_exception(error)
            self._fail(type(error).__qualname__, str(error))
        self._span.end()

    def _fail(self, kind: str, reason: str | None = None) -> None:
        from opentelemetry.trace import Status, StatusCode

        self.set("error.type", kind)
        self._span.set_status(Status(StatusCode.ERROR, reason))


NO_SPAN = Span()
"""The span of work that is not traced."""
_last_tracer: "tuple[object, trace.Tracer] | None" = None


def span(operation: str, table: str | None = None, **details: AttributeValue) -> Span:
    """Starts a span of an operation on a table, within the current span. For a `with` block.

    Details become attributes `sleeper.<name>`.
    """
    tracer = _find_tracer()
    if tracer is None:
        return NO_SPAN
    attributes: dict[str, AttributeValue] = {
        "db.system.name": _SYSTEM,
        "db.operation.name": operation,
    }
    if table is not None:
        attributes["db.collection.name"] = table
    attributes |= {f"{_SYSTEM}.{name}": value for name, value in details.items()}
    name = operation if table is None else f"{operation} {table}"
    return _RecordedSpan(tracer.start_span(name, attributes=attributes))


def request_span(
    method: str, path: str, route: str | None, scheme: str, headers: Iterable[tuple[bytes, bytes]]
) -> Span:
    """Starts the span of an HTTP request to a server, within the span that its headers name."""
    tracer = _find_tracer()
    if tracer is None:
        return NO_SPAN
    from opentelemetry.propagate import extract
    from opentelemetry.trace import SpanKind

    label = method if method in _METHODS else "_OTHER"
    attributes = {"http.request.method": label, "url.path": path, "url.scheme": scheme}
    if route is not None:
        attributes["http.route"] = route
    name = "HTTP" if label == "_OTHER" else label
    return _RecordedSpan(
        tracer.start_span(
            name if route is None else f"{name} {route}",
            extract({key.decode("latin-1"): value.decode("latin-1") for key, value in headers}),
            SpanKind.SERVER,
            attributes,
        )
    )


def is_traced() -> bool:
    """Returns whether the process has a tracer provider."""
    return _find_tracer() is not None


def _find_tracer() -> "trace.Tracer | None":
    """Returns the tracer of the process's provider; `None` without one."""
    global _last_tracer
    api = sys.modules.get(_API)
    if api is None:
        return None
    # Another thread may be importing the module.
    find = getattr(api, "get_tracer_provider", None)
    provider = None if find is None else find()
    if provider is None or isinstance(provider, api.ProxyTracerProvider):
        return None
    last = _last_tracer
    if last is None or last[0] is not provider:
        last = _last_tracer = provider, provider.get_tracer(_SYSTEM)
    return last[1]
