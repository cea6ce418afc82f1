"""JSON as Gson parses it: names and text without quotes or in single quotes.

Only objects, and only what JSON does not allow is read otherwise.
"""

import json
import re
from typing import Any

DEPTH_MAX = 20
_SPACE = re.compile(r"\s*")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', re.DOTALL)
_LITERAL = re.compile(r"[^\s/\\;#={}\[\]:,\"']+")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_CONSTANTS = {"true": True, "false": False, "null": None}


def parse_lenient_object(text: str) -> dict[str, Any]:
    """Returns the members of an object. ValueError if the text is none, or nested too deeply."""
    reader = _Reader(text)
    reader.expect("{")
    members = reader.members(1)
    if reader.peek():
        raise ValueError(f"more text at character {reader.position}")
    return members


class _Reader:
    """Reads values from a position."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.position = 0

    def peek(self) -> str:
        """Returns the next character after space; empty at the end."""
        match = _SPACE.match(self._text, self.position)
        assert match is not None
        self.position = match.end()
        return self._text[self.position : self.position + 1]

    def expect(self, characters: str) -> str:
        """Returns the next character, which must be one of these."""
        character = self.peek()
        if not character or character not in characters:
            raise ValueError(f"expected one of {characters!r} at character {self.position}")
        self.position += 1
        return character

    def members(self, depth: int) -> dict[str, Any]:
        """Returns the members of the object whose brace was read."""
        members: dict[str, Any] = {}
        if self.peek() == "}":
            self.position += 1
            return members
        while True:
            name = self._text_at() if self.peek() in {'"', "'"} else self._literal()
            self.expect(":")
            members[name] = self._value(depth)
            if self.expect(",}") == "}":
                return members

    def _value(self, depth: int) -> Any:
        character = self.peek()
        if character in {"{", "["} and depth >= DEPTH_MAX:
            raise ValueError(f"nested deeper than {DEPTH_MAX} levels")
        if character == "{":
            self.position += 1
            return self.members(depth + 1)
        if character == "[":
            self.position += 1
            return self._elements(depth + 1)
        return self._text_at() if character in {'"', "'"} else _to_value(self._literal())

    def _elements(self, depth: int) -> list[Any]:
        elements: list[Any] = []
        if self.peek() == "]":
            self.position += 1
            return elements
        while True:
            elements.append(self._value(depth))
            if self.expect(",]") == "]":
                return elements

    def _text_at(self) -> str:
        raw = self._match(_QUOTED)
        if raw[0] == "'":
            inner = re.sub(r'\\(.)|(")', _requote, raw[1:-1], flags=re.DOTALL)
            raw = f'"{inner}"'
        text: str = json.loads(raw, strict=False)
        return text

    def _literal(self) -> str:
        return self._match(_LITERAL)

    def _match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self.position)
        if match is None:
            raise ValueError(f"expected a value at character {self.position}")
        self.position = match.end()
        return match[0]


def _requote(match: re.Match[str]) -> str:
    """Returns an escape, or a quote, of text in single quotes as in double quotes."""
    if match[2]:
        return r"\""
    return "'" if match[1] == "'" else match[0]


def _to_value(literal: str) -> Any:
    if literal.lower() in _CONSTANTS:
        return _CONSTANTS[literal.lower()]
    return json.loads(literal) if _NUMBER.fullmatch(literal) else literal
