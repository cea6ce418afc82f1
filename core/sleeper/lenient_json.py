"""Values in the messages of clients, read as leniently as Gson reads them.

Format: docs/formats.md, "Message conventions". Each function converts a value in JSON;
MismatchError states the expected value.
"""

import math
import re
from typing import Annotated, Any

from sleeper.errors import InvalidRequestError
from sleeper.json_codec import Conversion, Member, MismatchError, parse_object
from sleeper.lenient_parser import DEPTH_MAX, parse_lenient_object

# A float holds every whole number up to here exactly.
_EXACT_MAX = 2**53
_CHARACTERS_MAX = 64 * 1024
_WHOLE_NUMBER = re.compile(r"([+-]?[0-9]{1,40})(\.0{0,40})?")
_FLAGS = {"true": True, "false": False}


def parse_message_object(body: str, what: str) -> dict[str, Any]:
    """Parses the body of a message. InvalidRequestError if it is not a JSON object.

    Names and text may lack their quotes.
    """
    try:
        raw = parse_object(body, what)
    except InvalidRequestError as error:
        try:
            return parse_lenient_object(body)
        except ValueError:
            raise error from None
    if _depth_exceeds(raw, DEPTH_MAX):
        # Python can parse deeper values than it can write.
        raise InvalidRequestError(f"{what}: nested deeper than {DEPTH_MAX} levels")
    return raw


def _depth_exceeds(raw: Any, levels: int) -> bool:
    nested = [raw]
    for _ in range(levels):
        values = (each.values() if isinstance(each, dict) else each for each in nested)
        nested = [v for each in values for v in each if isinstance(v, dict | list)]
    return bool(nested)


def is_unicode(text: str) -> bool:
    """Returns whether the text has no unpaired surrogate, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_text(raw: Any) -> str:
    """Returns text that a path, name or key can have, also of `5.0` or `true`."""
    match raw:
        case str() if "\0" in raw or not is_unicode(raw):
            raise MismatchError(raw, "Unicode text without NUL")
        case str():
            return raw
        case bool():
            return str(raw).lower()
        case int():
            return str(raw)
        case float() if math.isfinite(raw):
            return str(int(raw)) if raw.is_integer() else repr(raw)
    raise MismatchError(raw, "text")


def to_strict_text(raw: Any) -> str:
    """Returns Unicode text, for which no other value stands, of a bounded length but not empty."""
    if not isinstance(raw, str) or not raw:
        raise MismatchError(raw, "text")
    if not is_unicode(raw):
        raise MismatchError(raw, "Unicode text")
    if len(raw) > _CHARACTERS_MAX:
        raise MismatchError(raw, f"at most {_CHARACTERS_MAX:,} characters")
    return raw


def to_optional_text(raw: Any) -> str | None:
    """Returns strict text; None if it is null or empty."""
    return None if raw in (None, "") else to_strict_text(raw)


def to_key_text(raw: Any) -> Any:
    """Returns the text of a number or a flag, for a key of text; other values as they are."""
    match raw:
        case bool() | int():
            return to_text(raw)
        case float() if "e" not in (text := repr(raw)) and math.isfinite(raw):
            return text
    return raw


def to_whole_number(raw: Any) -> int:
    """Returns the number, also of `5.0`, `"5"` or `"5.0"`."""
    if isinstance(raw, float) and raw.is_integer() and abs(raw) <= _EXACT_MAX:
        return int(raw)
    if isinstance(raw, str) and (match := _WHOLE_NUMBER.fullmatch(raw)):
        return int(match[1])
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    raise MismatchError(raw, "an integer")


def to_flag(raw: Any) -> bool:
    """Returns the flag, also of text in any case."""
    flag = _FLAGS.get(raw.lower()) if isinstance(raw, str) else raw
    if not isinstance(flag, bool):
        raise MismatchError(raw, "true or false")
    return flag


LenientText = Annotated[str, Conversion(to_text)]
StrictText = Annotated[str, Conversion(to_strict_text)]
OptionalStrictText = Annotated[str | None, Conversion(to_optional_text), Member(optional=True)]
OptionalText = Annotated[LenientText | None, Member(optional=True)]
LenientFlag = Annotated[bool, Conversion(to_flag), Member(optional=True)]
