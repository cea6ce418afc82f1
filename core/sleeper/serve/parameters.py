"""Parameters in the query string of a request."""

from typing import overload

from starlette.requests import Request

from sleeper.errors import InvalidRequestError

_DIGITS_MAX = 19


@overload
def number_parameter(request: Request, name: str) -> int | None: ...
@overload
def number_parameter(request: Request, name: str, default: int) -> int: ...
def number_parameter(request: Request, name: str, default: int | None = None) -> int | None:
    """Returns a parameter that is a number, or the default if it is missing."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < _DIGITS_MAX):
        raise InvalidRequestError(
            f'"{name}" must be an integer of less than {_DIGITS_MAX} digits, not {text[:200]!r}'
        )
    return int(text)
