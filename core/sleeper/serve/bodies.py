"""What a request says: a JSON object of known members, of bounded size."""

import json
from collections.abc import Collection, Mapping
from typing import Any

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import Request

from sleeper.errors import InvalidRequestError
from sleeper.serve.problems import TooLargeError

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
