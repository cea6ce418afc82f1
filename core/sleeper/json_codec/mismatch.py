"""The error of a value that is not the expected one, with the path of its member."""

from typing import Any

from sleeper.errors import InvalidRequestError

_SHOWN_CHARACTERS_MAX = 200
MISSING: Any = object()
"""The value of a member that an object does not have."""


class MismatchError(Exception):
    """A value in JSON is not the expected one. The codec adds the path of its member."""

    def __init__(self, raw: Any, expected: str) -> None:
        self.expected = expected
        self.path: list[str] = []
        shown = "missing" if raw is MISSING else show(raw)
        self.problem = f" is {shown} (expected {expected})"

    def __str__(self) -> str:
        path = "".join(reversed(self.path)).removeprefix(".")
        subject = f'"{path}"' if path else "it" if self.problem[0] == " " else ""
        return (subject + self.problem).removeprefix(": ")


class InvalidError(MismatchError):
    """A conversion found the value invalid for a reason of its own."""

    def __init__(self, error: InvalidRequestError) -> None:
        super().__init__(None, "")
        self.problem = f": {error}"


def show(raw: Any) -> str:
    """Returns the beginning of the value for an error."""
    try:
        return repr(raw)[:_SHOWN_CHARACTERS_MAX]
    except RecursionError:
        return "a deeply nested value"
