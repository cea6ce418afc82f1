"""Parses DynamoDB's expressions: the tokens, and what all kinds of expressions share.

A *path* names an attribute or a member of it, such as `#a.b[1]`. A *placeholder* is a name `#x` or
a value `:x` that the request gives beside the expression.
"""

import re
from dataclasses import dataclass

from simulation.services.dynamodb.values import Item, Value, invalid

_TOKEN = re.compile(r"\s*(?:([#:]?\w+)|(<>|<=|>=|[<>=(),.\[\]+-]))")

Part = str | int
Path = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """What an expression is evaluated on: an item and the placeholders of the request."""

    item: Item
    names: dict[str, str]
    values: dict[str, Value]

    def name(self, part: str) -> str:
        """Returns the attribute's name. An error if a placeholder has none."""
        if part[0] != "#":
            return part
        try:
            return self.names[part]
        except KeyError:
            raise invalid(
                "Invalid expression: An expression attribute name used in the document path is "
                f"not defined; attribute name: {part}"
            ) from None

    def path(self, path: Path) -> Path:
        """Returns the path with the attributes' names."""
        return tuple(self.name(part) if isinstance(part, str) else part for part in path)

    def value(self, placeholder: str) -> Value:
        """Returns the value of a placeholder."""
        try:
            return self.values[placeholder]
        except KeyError:
            raise invalid(
                "Invalid expression: An expression attribute value used in expression is not "
                f"defined; attribute value: {placeholder}"
            ) from None

    def find(self, path: Path) -> Value | None:
        """Returns the value at a path, None if the item has none."""
        first = path[0]
        assert isinstance(first, str)
        value = self.item.get(self.name(first))
        for part in path[1:]:
            if value is None:
                return None
            if isinstance(part, int):
                members = value.get("L", ())
                value = members[part] if part < len(members) else None
            else:
                value = value.get("M", {}).get(self.name(part))
        return value


class Parser:
    """Reads tokens from the left. `placeholders` are those that it has read."""

    def __init__(self, kind: str, text: str) -> None:
        self._kind = kind
        self._tokens = _tokens(kind, text)
        self._position = 0
        self.placeholders: set[str] = set()

    @property
    def next(self) -> str:
        """Returns the next token, empty at the end."""
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def take(self) -> str:
        """Reads a token."""
        token = self.next
        self._position += 1
        if token[:1] in {"#", ":"}:
            self.placeholders.add(token)
        return token

    def accept(self, word: str) -> bool:
        """Reads the next token if it is that word, in any case of letters."""
        if self.next.upper() != word:
            return False
        self.take()
        return True

    def expect(self, word: str) -> None:
        """Reads the next token, which must be that word."""
        if not self.accept(word):
            raise self.error()

    def error(self) -> Exception:
        """Returns the error of an unexpected token."""
        token = self.next or "<EOF>"
        return invalid(f'Invalid {self._kind}: Syntax error; token: "{token}"')

    def path(self) -> Path:
        """Reads a path."""
        parts: list[Part] = [self._name()]
        while True:
            if self.accept("."):
                parts.append(self._name())
            elif self.accept("["):
                if not self.next.isdigit():
                    raise self.error()
                parts.append(int(self.take()))
                self.expect("]")
            else:
                return tuple(parts)

    def value(self) -> str:
        """Reads the placeholder of a value."""
        if self.next[:1] != ":":
            raise self.error()
        return self.take()

    def end(self) -> None:
        """Checks that no token is left."""
        if self.next:
            raise self.error()

    def _name(self) -> str:
        if not re.fullmatch(r"#\w+|[A-Za-z_]\w*", self.next):
            raise self.error()
        return self.take()


def _tokens(kind: str, text: str) -> list[str]:
    tokens, position = [], 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise invalid(f'Invalid {kind}: Syntax error; token: "{text[position:][:10]}"')
        tokens.append(match[1] or match[2])
        position = match.end()
    if not tokens:
        raise invalid(f"Invalid {kind}: The expression can not be empty;")
    return tokens


def parse_projection(text: str) -> tuple[list[Path], set[str]]:
    """Returns the paths of a projection expression, and its placeholders."""
    parser = Parser("ProjectionExpression", text)
    paths = [parser.path()]
    while parser.accept(","):
        paths.append(parser.path())
    parser.end()
    return paths, parser.placeholders
