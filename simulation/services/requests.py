"""Requests of simulated clients: faults as errors of botocore, and boto3's retries.

A *request* is one call of a client's method. It is sent up to `attempts` times, because boto3's
standard mode repeats a request whose error is transient or throttling. A repetition after a lost
response finds the effect of the first attempt, as on AWS. Some faults last for all attempts. Waits
are the mean of boto3's random ones, so that they need no random source.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
)

from simulation.calls import Call, Calls, Fault
from simulation.scheduling.patching import shared_cache

T = TypeVar("T")
Sleep = Callable[[float], object]

_THROTTLING_CODES = {
    "ProvisionedThroughputExceededException",
    "RequestThrottled",
    "SlowDown",
    "ThrottlingException",
}
_TRANSIENT_STATUS = {500, 502, 503, 504}
_THROTTLING_SCALE_SECONDS = 1.0
_SCALE_SECONDS = {"dynamodb": 0.025}
_SCALE_SECONDS_DEFAULT = 0.05
_WAIT_SECONDS_MAX = 20.0
# The part of faults that last for all attempts of a request. Others seldom reach the caller.
_LASTING = 0.4
# The code of throttling by a service, and that of its failures with their status.
_THROTTLED = {
    "dynamodb": "ProvisionedThroughputExceededException",
    "sqs": "RequestThrottled",
    "s3": "SlowDown",
}
_FAILED = {
    "dynamodb": ("InternalServerError", 500),
    "sqs": ("ServiceUnavailable", 503),
    "s3": ("ServiceUnavailable", 503),
}


@shared_cache
def error_class(code: str) -> type[ClientError]:
    """Returns the exception of a code, as `client.exceptions` has it."""
    created: type[ClientError] = type(code.rpartition(".")[2], (ClientError,), {})
    return created


def client_error(
    code: str,
    message: str,
    operation: str,
    status: int = 400,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Exception:
    """Returns the error that boto3 raises for an error response of a service."""
    response = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
        **more,
    }
    created: Exception = error_class(code)(response, operation)
    return created


class LastingFault:
    """Whether the fault of one attempt of a request is that of all later ones too."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._error: Exception | None = None

    def begin(self, error: Exception) -> Exception:
        """Returns the error of an attempt, which may last."""
        if self._calls.choose(_LASTING):
            self._error = error
        return error

    def check(self) -> None:
        """Raises the error that lasts."""
        if self._error is not None:
            raise self._error


class Requests:
    """Sends the requests of one client."""

    def __init__(self, calls: Calls, sleep: Sleep, service: str, attempts: int) -> None:
        self._calls = calls
        self._sleep = sleep
        self._service = service
        self._attempts = attempts

    @property
    def calls(self) -> Calls:
        """Returns the calls of the world."""
        return self._calls

    def send(self, operation: str, target: str, effect: Callable[[], T]) -> T:
        """Returns the effect's result. Raises the last error if all attempts failed."""
        call = Call(self._service, operation, target)
        lasting = LastingFault(self._calls)
        for attempt in range(self._attempts):
            try:
                lasting.check()
                return self._calls(
                    call, effect, lambda fault: lasting.begin(self._error(fault, operation))
                )
            except (ClientError, HTTPClientError) as error:
                if attempt + 1 == self._attempts or not _is_retried(error):
                    raise
                wait_seconds = self._wait_seconds(error, attempt)
            self._sleep(wait_seconds)
        raise AssertionError("unreachable")

    def wait(self, seconds: float) -> None:
        """Waits, as a service does before it answers a long poll."""
        self._sleep(seconds)

    def _error(self, fault: Fault, operation: str) -> Exception:
        url = f"https://{self._service}.simulated"
        lost: Exception = ReadTimeoutError(endpoint_url=url, error="simulated")
        if fault is Fault.LOST:
            return lost
        if fault is Fault.THROTTLED:
            code = _THROTTLED.get(self._service, "ThrottlingException")
            return client_error(code, "Rate exceeded", operation)
        unreachable: Exception = EndpointConnectionError(endpoint_url=url, error="simulated")
        if self._calls.choose(0.5):
            return unreachable
        code, status = _FAILED.get(self._service, ("InternalFailure", 500))
        return client_error(code, "Internal error", operation, status)

    def _wait_seconds(self, error: Exception, attempt: int) -> float:
        scale = _SCALE_SECONDS.get(self._service, _SCALE_SECONDS_DEFAULT)
        if isinstance(error, ClientError) and _code(error) in _THROTTLING_CODES:
            scale = _THROTTLING_SCALE_SECONDS
        return float(min(scale * 2**attempt, _WAIT_SECONDS_MAX) / 2)


def _is_retried(error: Exception) -> bool:
    if not isinstance(error, ClientError):
        return True
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return _code(error) in _THROTTLING_CODES or status in _TRANSIENT_STATUS


def _code(error: ClientError) -> str:
    return str(error.response["Error"]["Code"])


class Exceptions:
    """The `exceptions` of a client: a class for each code."""

    def __getattr__(self, code: str) -> Any:
        return error_class(code)
