"""The error of a check."""

from typing import Any


class Violation(AssertionError):  # noqa: N818 (the word of a rule)
    """A rule is broken. `details` are the values that show it."""

    def __init__(self, rule: str, what: str, **details: Any) -> None:
        self.rule, self.what, self.details = rule, what, details
        shown = "".join(f"\n  {name}: {value!r:.2000}" for name, value in details.items())
        super().__init__(f"{rule}: {what}{shown}")


def require(condition: object, rule: str, what: str, **details: Any) -> None:
    """Raises `Violation` unless the condition holds."""
    if not condition:
        raise Violation(rule, what, **details)
