"""Lenient conversions of JSON values, as Gson does (docs/formats.md, "Message conventions").

Each function returns other values unchanged, for the caller to reject.
"""

import re

# A float holds every whole number up to here exactly.
_EXACT_MAX = 2**53
_WHOLE_NUMBER = re.compile(r"([+-]?[0-9]{1,40})(\.0{0,40})?")
_FLAGS = {"true": True, "false": False}


def whole_number(raw: object) -> object:
    """Converts `5.0`, `"5"` or `"5.0"` to an int."""
    if isinstance(raw, float) and raw.is_integer() and abs(raw) <= _EXACT_MAX:
        return int(raw)
    if isinstance(raw, str) and (match := _WHOLE_NUMBER.fullmatch(raw)):
        return int(match[1])
    return raw


def flag(raw: object) -> object:
    """Converts `"true"` or `"False"` to a bool."""
    return _FLAGS.get(raw.lower(), raw) if isinstance(raw, str) else raw


def is_unicode(text: str) -> bool:
    """Returns whether the text has no unpaired surrogate, which UTF-8 cannot encode."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
