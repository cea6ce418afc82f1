"""Java properties text, as java.util.Properties reads and writes it."""

import re
from collections.abc import Iterator, Mapping

from sleeper.errors import InvalidRequestError

_SHORT_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN_ESCAPES = {
    "\\": "\\\\",
    "\t": "\\t",
    "\n": "\\n",
    "\r": "\\r",
    "\f": "\\f",
    "=": "\\=",
    ":": "\\:",
    "#": "\\#",
    "!": "\\!",
}
_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\n|\r")


def read_properties_text(text: str) -> dict[str, str]:
    """Parses names and values. The last line of a name wins; empty values are omitted.

    InvalidRequestError names the line of an invalid escape.
    """
    values: dict[str, str] = {}
    for number, line in _logical_lines(text):
        end = _key_end(line)
        key = _unescape(line[:end], number)
        rest = line[end:].lstrip(_BLANK)
        if rest[:1] in {"=", ":"}:
            rest = rest[1:].lstrip(_BLANK)
        values[key] = _unescape(rest, number)
    return {key: value for key, value in values.items() if value != ""}


def write_properties_text(values: Mapping[str, str]) -> str:
    """Returns a line for each value, ordered by name, without empty values."""
    lines = [
        f"{_escape(key, spaces='all')}={_escape(value, spaces='first')}\n"
        for key, value in sorted(values.items())
        if value != ""
    ]
    return "".join(lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields lines without comments, joined where one ends in an odd number of backslashes."""
    joined, begun = "", 0
    for number, natural in enumerate(_LINE_END.split(text), start=1):
        line = natural.lstrip(_BLANK)
        if not begun and (not line or line[0] in "#!"):
            continue
        begun = begun or number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        yield begun, joined + line
        joined, begun = "", 0
    if joined:
        yield begun, joined


def _key_end(line: str) -> int:
    escaped = False
    for position, character in enumerate(line):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in "=:" + _BLANK:
            return position
    return len(line)


def _unescape(text: str, line_number: int) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character != "\\" or position + 1 == len(text):
            parts.append(character if character != "\\" else "")
            position += 1
            continue
        escape = text[position + 1]
        if escape == "u":
            parts.append(_unicode_escape(text[position + 2 : position + 6], line_number))
            position += 6
        else:
            parts.append(_SHORT_ESCAPES.get(escape, escape))
            position += 2
    # Java writes a character beyond the basic plane as two escapes, a surrogate pair.
    return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _unicode_escape(digits: str, line_number: int) -> str:
    if not re.fullmatch(r"[0-9A-Fa-f]{4}", digits, re.ASCII):
        raise InvalidRequestError(
            f"properties line {line_number}: \\u{digits} is no character: four hexadecimal "
            "digits are expected"
        )
    return chr(int(digits, 16))


def _escape(text: str, spaces: str) -> str:
    escaped = "".join(_escape_character(character) for character in text)
    if spaces == "all":
        return escaped.replace(" ", "\\ ")
    # A space at the front of a value would be read as part of the separator.
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _escape_character(character: str) -> str:
    if character in _WRITTEN_ESCAPES:
        return _WRITTEN_ESCAPES[character]
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
