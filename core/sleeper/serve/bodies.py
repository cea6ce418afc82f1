"""What a request says: a JSON object of known members, of bounded size."""

import json
import logging
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

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


class TooLargeError(InvalidRequestError):
    """An answer, or what was sent, is larger than the server's terms allow."""


def problem_of(error: Exception) -> tuple[HTTPStatus, dict[str, str]]:
    """The status and the body. What nobody expected is logged here and not told."""
    if isinstance(error, TooLargeError):
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _body("InvalidRequest", str(error))
    for kind, status in _STATUS.items():
        if isinstance(error, kind):
            if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                logger.error("%s", error)
            return status, _body(kind.__name__.removesuffix("Error"), str(error))
    logger.error("unexpected %s", type(error).__name__, exc_info=error)
    return HTTPStatus.INTERNAL_SERVER_ERROR, _body("Internal", "the server failed; see its log")


def problem_response(error: Exception) -> Response:
    """The whole answer. Who finds the server busy may try again soon."""
    status, body = problem_of(error)
    headers = {"Retry-After": "1"} if status is HTTPStatus.SERVICE_UNAVAILABLE else None
    return JSONResponse(body, status, headers)


async def answer_problem(_request: Request, error: Exception) -> Response:
    """For errors that routes raise."""
    return problem_response(error)


async def answer_http_problem(_request: Request, error: Exception) -> Response:
    """For what is wrong with the request as HTTP: the path, the method, what it accepts."""
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    detail = phrase.lower() if error.detail == phrase else error.detail
    body = _body(phrase.title().replace(" ", ""), detail)
    return JSONResponse(body, error.status_code, error.headers)


def _body(kind: str, reason: str) -> dict[str, str]:
    return {"error": kind, "reason": reason}


NUMBER_MAX = 2**63 - 1
_SECONDS_MAX = 30


async def json_body(request: Request, bytes_max: int) -> dict[str, Any]:
    """The body. Only JSON is taken, which no other site's page can send without being let.

    InvalidRequestError if it is no JSON object.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, f"the body must be application/json, not {kind or 'untyped'}")
    raw = await body_bytes(request, bytes_max)
    try:
        read = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the body is not JSON: {error}") from error
    if not isinstance(read, dict):
        raise InvalidRequestError("the body must be a JSON object")
    return read


async def body_bytes(request: Request, bytes_max: int) -> bytes:
    """The whole body. TooLargeError as soon as it is seen to be too large."""
    body = bytearray()
    try:
        with anyio.fail_after(_SECONDS_MAX):
            async for chunk in request.stream():
                body += chunk
                if len(body) > bytes_max:
                    raise TooLargeError(f"the body has more than {bytes_max:,} bytes")
    except TimeoutError:
        raise HTTPException(408, f"the body did not come within {_SECONDS_MAX} s") from None
    return bytes(body)


def check_members(raw: Mapping[str, Any], known: Collection[str]) -> None:
    """InvalidRequestError if there are others: one may be misspelt."""
    for name in raw:
        if name not in known:
            raise InvalidRequestError(f"no member {name!r} is known; those are {', '.join(known)}")


def text_of(raw: Mapping[str, Any], name: str) -> str | None:
    """A member of text; None if it is missing."""
    value = raw.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidRequestError(f'"{name}" must be text, not {value!r:.200}')
    return value


def number_of(raw: Mapping[str, Any], name: str, least: int) -> int | None:
    """A member of a whole number that a LongType holds; None if it is missing."""
    value = raw.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= NUMBER_MAX:
        raise InvalidRequestError(f'"{name}" must be a whole number from {least} to 2^63-1')
    return value


def list_of(raw: Mapping[str, Any], name: str) -> list[Any]:
    """A member that is a list; empty if it is missing."""
    value = raw.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidRequestError(f'"{name}" must be a list, not {value!r:.200}')
    return value
