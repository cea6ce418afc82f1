"""How fields of dataclasses are stored, in their annotations."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Encoder = Callable[[Any], Any]
Decoder = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Member:
    """How a field is stored, if not under its own name at its own place.

    An `optional` member is left out if it has the field's default, and may be missing or null.
    A default that a factory makes is not left out. A member that is missing, null or empty is read
    under its other names. A `flat` dataclass puts its members into the enclosing object. A `last`
    member follows all others. A field that is not `stored` always has its default when read.
    """

    name: str | None = None
    other_names: tuple[str, ...] = ()
    optional: bool = False
    flat: bool = False
    last: bool = False
    stored: bool = True


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a value is read and written, instead of by its type.

    `decode` raises MismatchError or InvalidRequestError. That of a `flat` member gets the object.
    """

    decode: Decoder
    encode: Encoder = lambda value: value


class AsList:
    """Marks a dataclass that is stored as the list of its fields' values."""
