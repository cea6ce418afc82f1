"""Text that is safe to print on a terminal."""

import re

# Control characters move the cursor, set the title or insert input; the others reverse text.
_UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Returns the text with control characters escaped, such as `\\x1b`, except line feeds."""
    return _UNSAFE.sub(_escape, text)


def format_cell(text: str, width_max: int) -> str:
    """Returns the text as one printable line of at most `width_max` terminal columns."""
    # Commands that print no table save the time to load rich.
    from rich.cells import cell_len, set_cell_size

    line = text if text.isprintable() else printable(" ".join(text.split()))
    return line if cell_len(line) <= width_max else set_cell_size(line, width_max - 1) + "…"


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
