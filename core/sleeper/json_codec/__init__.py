"""The JSON form of dataclasses, derived from their type annotations.

A dataclass is an object with one member per field, in field order. A tuple is a list, an enum its
value, and bytes are `{"b": <base64>}`. `Member` in an annotation changes how a field is stored:

    @dataclass(frozen=True)
    class Lease:
        job_ids: Annotated[tuple[str, ...], Member("jobs")]
        owner: Annotated[str | None, Member(optional=True)] = None

A mapping is an object; its null members are left out, unless its values may be anything. Readers
ignore unknown members, so that newer versions can add some. `Conversion` reads and writes a value
by functions, such as those of `sleeper.lenient_json`.
"""

from sleeper.json_codec.codec import JsonCodec, camel_case, parse_json, parse_object
from sleeper.json_codec.member import AsList, Conversion, Member
from sleeper.json_codec.mismatch import MismatchError

__all__ = [
    "AsList",
    "Conversion",
    "JsonCodec",
    "Member",
    "MismatchError",
    "camel_case",
    "parse_json",
    "parse_object",
]
