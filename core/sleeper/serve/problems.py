"""Errors as callers are told of them: a status, and JSON with the kind and the reason."""

import logging
from http import HTTPStatus

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
