"""Java properties text, as java.util.Properties reads and writes it."""

import re
from collections.abc import Iterator, Mapping

from sleeper.errors import InvalidRequestError

_SHORT_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(?:u(.{0,4})|(.?))", re.DOTALL)
_KEY = re.compile(r"(?:\\.?|[^\\=: \t\f])*", re.DOTALL)
_WRITTEN_ESCAPES = str.maketrans(
    {
        "\t": "\\t",
        "\n": "\\n",
        "\r": "\\r",
        "\f": "\\f",
        **{character: f"\\{character}" for character in "\\=:#!"},
    }
)
_NOT_PRINTABLE_ASCII = re.compile(r"[^ -~]")
_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\n|\r")


def read_properties_text(text: str) -> dict[str, str]:
    """Parses names and values. The last line of a name wins; empty values are omitted.

    InvalidRequestError names the line of an invalid escape.
    """
    values: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _KEY.match(line)
        end = match.end() if match else 0
        key = _unescape(line[:end], number)
        rest = line[end:].lstrip(_BLANK)
        if rest[:1] in {"=", ":"}:
            rest = rest[1:].lstrip(_BLANK)
        values[key] = _unescape(rest, number)
    return {key: value for key, value in values.items() if value != ""}


def write_properties_text(values: Mapping[str, str]) -> str:
    """Returns a line for each value, ordered by name, without empty values."""
    lines = [
        f"{_escape_key(key)}={_escape_value(value)}\n"
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


def _unescape(text: str, line_number: int) -> str:
    def decode(escape: re.Match[str]) -> str:
        digits, character = escape.groups()
        if digits is None:
            return _SHORT_ESCAPES.get(character, character)
        if not re.fullmatch(r"[0-9A-Fa-f]{4}", digits, re.ASCII):
            raise InvalidRequestError(
                f"properties line {line_number}: \\u{digits} is not a character (expected four "
                "hexadecimal digits)"
            )
        return chr(int(digits, 16))

    if "\\" not in text:
        return text
    decoded = _ESCAPE.sub(decode, text)
    # Java writes a character beyond the basic plane as two escapes, a surrogate pair.
    return decoded.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _escape_key(key: str) -> str:
    return _escape(key).replace(" ", "\\ ")


def _escape_value(value: str) -> str:
    # A space at the front of a value would be read as part of the separator.
    return ("\\" if value.startswith(" ") else "") + _escape(value)


def _escape(text: str) -> str:
    return _NOT_PRINTABLE_ASCII.sub(_escape_unicode, text.translate(_WRITTEN_ESCAPES))


def _escape_unicode(character: re.Match[str]) -> str:
    units = character[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
