"""Single values of JSON that clients sent, read as leniently as Gson does.

See docs/formats.md, "Message conventions".

Each function returns a value that it does not understand as it is, for the caller to refuse.
"""

import re

# A float holds every whole number up to here exactly.
_EXACT_MAX = 2**53
_WHOLE_NUMBER = re.compile(r"([+-]?[0-9]{1,40})(\.0{0,40})?")
_FLAGS = {"true": True, "false": False}


def whole_number(raw: object) -> object:
    """The int that `5.0`, `"5"` or `"5.0"` stands for."""
    if isinstance(raw, float) and raw.is_integer() and abs(raw) <= _EXACT_MAX:
        return int(raw)
    if isinstance(raw, str) and (match := _WHOLE_NUMBER.fullmatch(raw)):
        return int(match[1])
    return raw


def flag(raw: object) -> object:
    """The bool that `"true"` or `"False"` stands for."""
    return _FLAGS.get(raw.lower(), raw) if isinstance(raw, str) else raw


def is_unicode(text: str) -> bool:
    """Whether the text has no unpaired surrogate, which JSON can escape and UTF-8 cannot hold."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
