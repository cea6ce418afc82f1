"""The tokens of a statement, as the engine's parser reads them."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from sleeper.errors import InvalidRequestError

_TOKEN = re.compile(
    r"""(?P<blank>\s++|--[^\r\n]*+(?:\r?\n|\Z))
    |(?P<comment>/\*)
    |(?P<text>[eE]'(?:[^'\\]|\\.|'')*+'|'(?:[^']|'')*+')
    |(?P<name>"(?:[^"]|"")*+"|`(?:[^`]|``)*+`)
    |(?P<dollar>(?<![\w@\#$])\$\w*+\$)
    |(?P<parameter>(?<![\w@\#$\x80-\U0010ffff])\$[A-Za-z0-9_]++(?![$\x80-\U0010ffff]))
    |(?P<number>\d++(?:\.\d++)?+(?:[eE][+-]?+\d++)?+)
    |(?P<word>\w++)
    |(?P<symbol>(?!--)[^'"`$])""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_MARK = re.compile(r"/\*|\*/")
# Literals such as q'[...]' end at a mark of their own.
_QUOTED_WORDS = frozenset(("Q", "NQ"))


class Token(NamedTuple):
    """A part of a statement between two positions.

    Its kind is text, name, dollar, parameter, number, word or symbol. The text of a word is in
    upper case.
    """

    kind: str
    text: str
    start: int
    end: int


def read_tokens(statement: str) -> Iterator[Token]:
    """Yields the tokens without blanks and comments. InvalidRequestError if there is no end."""
    position, word_end = 0, -1
    while position < len(statement):
        match = _TOKEN.match(statement, position)
        if match is None or (match.lastgroup == "text" and position == word_end):
            raise InvalidRequestError(
                f"invalid SQL: unexpected {statement[position : position + 50]!r}"
            )
        kind, token, end = str(match.lastgroup), match[0], match.end()
        if kind == "comment":
            end = _comment_end(statement, end)
        elif kind == "dollar":
            closed = statement.find(token, end)
            if closed < 0:
                raise InvalidRequestError(f"invalid SQL: unterminated {token[:50]}")
            end = closed + len(token)
        if kind == "word":
            token = token.upper()
            word_end = end if token in _QUOTED_WORDS else -1
        if kind not in {"blank", "comment"}:
            yield Token(kind, token, position, end)
        position = end


def _comment_end(statement: str, position: int) -> int:
    """Returns the end of the comment that begins before `place`. Comments nest."""
    depth = 1
    for mark in _COMMENT_MARK.finditer(statement, position):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    raise InvalidRequestError("invalid SQL: unterminated comment")
