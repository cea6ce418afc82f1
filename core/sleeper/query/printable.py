"""Text that is safe to show on a terminal, whatever a value holds."""

import re

# Control characters move the cursor, set the title or answer as if typed; the others reverse text.
_UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """The text with control characters as escapes, such as `\\x1b`; ends of lines stay."""
    return _UNSAFE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
