"""The HTTP API behind API Gateway: the application of `sleeper serve`, without streaming."""

from dataclasses import replace
from functools import cache
from typing import Any

from mangum import Mangum

from sleeper.instance import Instance
from sleeper.serve.application import make_application
from sleeper.serve.routes import system_routes
from sleeper.serve.service import read_limits
from sleeper.workers.lambda_function import Event, lambda_function

# Lambda returns at most 6 MB, in which bytes are base64; API Gateway waits 30 s.
_ANSWER_BYTES_MAX = 4 * 1024**2
_SECONDS_MAX = 25
_READ_ONLY_REASON = (
    "the HTTP API on AWS is read-only: change tables with the command line or from Python"
)
_TEXTS = ["application/json", "application/x-ndjson"]


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, Any]:
    """Answers one request. IAM has authenticated its caller."""
    answer: dict[str, Any] = _application(instance)(dict(event), _CONTEXT)
    return answer


@cache
def _application(instance: Instance) -> Mangum:
    limits = read_limits(instance)
    seconds = min(limits.seconds_max, _SECONDS_MAX)
    limits = replace(limits, seconds_max=seconds, answer_bytes_max=_ANSWER_BYTES_MAX)
    application = make_application(
        instance,
        limits,
        with_page=False,
        read_only_reason=_READ_ONLY_REASON,
        more_routes=system_routes(instance, accepts_changes=False),
    )
    return Mangum(application, lifespan="off", text_mime_types=_TEXTS)


# The application does not read Lambda's context.
_CONTEXT: Any = None
