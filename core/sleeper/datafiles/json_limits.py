"""The limits of values of `JSONType`."""

from dataclasses import dataclass

JSON_DEPTH_MAX = 500
"""The most levels that limits may allow, because msgspec recurses."""


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """The most levels of a value, and its most bytes."""

    depth: int = JSON_DEPTH_MAX
    bytes: int = 2**31 - 1


NO_LIMITS = JsonLimits()
"""The limits of values that were stored before."""
