"""The export of this process's spans by OTLP over HTTP, if variables OTEL_* request it."""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sleeper import DISTRIBUTION, __version__
from sleeper.errors import InvalidRequestError
from sleeper.tracing import is_traced

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

logger = logging.getLogger(__name__)

_SERVICE = "sleeper"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"
# A collector that cannot be reached must not delay the end of a process for longer.
_SHUTDOWN_SECONDS_MAX = 5.0


@contextmanager
def exported_spans() -> Iterator[None]:
    """Exports the spans of this process during the block, if the variables OTEL_* request it.

    The exporter is that of OTLP over HTTP. A tracer provider of the application stays in place.
    Raises InvalidRequestError for an invalid value of a variable.
    """
    provider = _set_up() if _is_requested() else None
    try:
        yield
    finally:
        if provider is not None:
            # It sends the last spans, and has no timeout of its own.
            shutdown = threading.Thread(target=provider.shutdown, name="traces", daemon=True)
            shutdown.start()
            shutdown.join(_SHUTDOWN_SECONDS_MAX)


def _is_requested() -> bool:
    if _read("OTEL_SDK_DISABLED").lower() == "true":
        return False
    exporter = _read("OTEL_TRACES_EXPORTER")
    if exporter not in {"", "otlp"}:
        if exporter != "none":
            _warn(f"OTEL_TRACES_EXPORTER is {exporter!r} (expected otlp or none)")
        return False
    if not exporter and not any(map(_read, _ENDPOINTS)):
        return False
    for name in _PROTOCOLS:
        if protocol := _read(name):
            if protocol != _PROTOCOL:
                _warn(f"{name} is {protocol!r} (expected {_PROTOCOL})")
            return protocol == _PROTOCOL
    return True


def _set_up() -> "TracerProvider | None":
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        _warn(f"{error.name} is not installed: pip install '{DISTRIBUTION}[otel]'")
        return None
    if is_traced():
        return None
    own = Resource.create({"service.name": _SERVICE, "service.version": __version__})
    try:
        # The variables OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES replace the defaults.
        resource = own.merge(OTELResourceDetector().detect())
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except ValueError as error:
        raise InvalidRequestError(f"invalid value of a variable OTEL_*: {error}") from error
    trace.set_tracer_provider(provider)
    return provider


def _read(variable: str) -> str:
    return os.environ.get(variable, "").strip()


def _warn(reason: str) -> None:
    logger.warning("traces are not exported: %s", reason)
