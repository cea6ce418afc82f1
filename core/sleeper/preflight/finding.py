"""What a check has to say."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from sleeper.errors import InvalidRequestError


class Level(StrEnum):
    """How bad it is. OK says that a check has passed."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """`check` names the check, `message` says what is so, and what to do about it."""

    level: Level
    check: str
    message: str


def error(check: str, message: str) -> Finding:
    return Finding(Level.ERROR, check, message)


def warning(check: str, message: str) -> Finding:
    return Finding(Level.WARNING, check, message)


def passed(check: str, message: str) -> Finding:
    return Finding(Level.OK, check, message)


def refuse_errors(findings: Iterable[Finding]) -> None:
    """InvalidRequestError with the errors, if there are any."""
    errors = [each.message for each in findings if each.level is Level.ERROR]
    if errors:
        raise InvalidRequestError("; ".join(errors))
