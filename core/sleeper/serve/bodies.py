"""JSON bodies of requests and of error responses."""

import json
import logging
from http import HTTPStatus
from typing import Any

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from sleeper.datafiles.sources.budget import TooLargeError
from sleeper.errors import (
    ConflictError,
    DataError,
    InvalidRequestError,
    NotFoundError,
    SleeperError,
    StateMovedOnError,
    UnavailableError,
    UserCodeError,
)

DISCONNECTED = 499
"""The status that is logged if the client disconnects before the response, as in nginx."""

logger = logging.getLogger(__name__)
_STATUS: dict[type[SleeperError], HTTPStatus] = {
    InvalidRequestError: HTTPStatus.BAD_REQUEST,
    NotFoundError: HTTPStatus.NOT_FOUND,
    ConflictError: HTTPStatus.CONFLICT,
    StateMovedOnError: HTTPStatus.CONFLICT,
    UnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    UserCodeError: HTTPStatus.UNPROCESSABLE_ENTITY,
    DataError: HTTPStatus.INTERNAL_SERVER_ERROR,
}


class ForbiddenError(InvalidRequestError):
    """The caller may not do what it requests."""


def describe_problem(error: Exception) -> tuple[HTTPStatus, dict[str, str]]:
    """Returns the status and JSON of an error response. Logs unexpected errors."""
    if isinstance(error, TooLargeError):
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _problem("InvalidRequest", str(error))
    if isinstance(error, ForbiddenError):
        return HTTPStatus.FORBIDDEN, _problem("Forbidden", str(error))
    for kind, status in _STATUS.items():
        if isinstance(error, kind):
            if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                logger.error("%s", error)
            return status, _problem(kind.__name__.removesuffix("Error"), str(error))
    logger.error("unexpected %s", type(error).__name__, exc_info=error)
    return HTTPStatus.INTERNAL_SERVER_ERROR, _problem(
        "Internal", "internal error: see the server log"
    )


def problem_response(error: Exception) -> Response:
    """Returns the response for an error. `Retry-After` asks clients of a busy server to retry."""
    status, body = describe_problem(error)
    headers = {"Retry-After": "1"} if status is HTTPStatus.SERVICE_UNAVAILABLE else None
    return JSONResponse(body, status, headers)


async def answer_problem(_request: Request, error: Exception) -> Response:
    """Handles errors of endpoints."""
    return problem_response(error)


async def answer_http_problem(_request: Request, error: Exception) -> Response:
    """Handles HTTP errors: an unknown path, method or content type."""
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    detail = phrase.lower() if error.detail == phrase else error.detail
    body = _problem(phrase.title().replace(" ", ""), detail)
    return JSONResponse(body, error.status_code, error.headers)


async def answer_disconnect(_request: Request, error: Exception) -> Response:
    """Handles a disconnect before the end of the body. Nobody receives the response."""
    assert isinstance(error, ClientDisconnect)
    return Response(status_code=DISCONNECTED)


def _problem(kind: str, reason: str) -> dict[str, str]:
    return {"error": kind, "reason": reason}


_SECONDS_MAX = 30


async def json_body(request: Request, bytes_max: int) -> dict[str, Any]:
    """Returns the body of a request. Raises `InvalidRequestError` if it is not a JSON object.

    A browser sends JSON to another site only after that site allows it, so other content types
    are refused.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, f"content type {kind!r} (expected application/json)")
    raw = await body_bytes(request, bytes_max)
    try:
        read = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the body is not JSON: {error}") from error
    if not isinstance(read, dict):
        raise InvalidRequestError("the body must be a JSON object")
    return read


async def body_bytes(request: Request, bytes_max: int) -> bytes:
    """Returns the body. Raises `TooLargeError` as soon as it exceeds `bytes_max`."""
    body = bytearray()
    try:
        with anyio.fail_after(_SECONDS_MAX):
            async for chunk in request.stream():
                body += chunk
                if len(body) > bytes_max:
                    raise TooLargeError(f"the body has more than {bytes_max:,} bytes")
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {_SECONDS_MAX} s") from None
    return bytes(body)
