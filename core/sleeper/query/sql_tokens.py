"""Tokens of a statement, and limits that the engine does not have.

The engine plans a statement by recursion: one of thousands of operators overflows the stack, which
ends the process. So an upper bound of the statement's depth is computed from its tokens.

Tokens are split as the engine's parser splits them, and in linear time: every quantifier is
possessive. Where the two might disagree the statement is refused, because one could take for a
literal what the other takes for operators.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sleeper.errors import InvalidRequestError

_DEPTH_MAX = 1000
# A join or a set operation takes about ten times the stack of an operator.
_PLAN_COSTS = {"SELECT": 2} | dict.fromkeys(("JOIN", "EXCEPT", "INTERSECT", "MINUS"), 10)
# fmt: off
_OPERATORS = frozenset((
    "AND", "OR", "XOR", "NOT", "IS", "ISNULL", "NOTNULL", "IN", "LIKE", "ILIKE", "SIMILAR", "RLIKE",
    "REGEXP", "MATCH", "MEMBER", "BETWEEN", "ESCAPE", "DIV", "MOD", "COLLATE", "AT", "OVERLAPS",
    "OPERATOR", "PRIOR", "BINARY",
))
# fmt: on
_CLAUSES = frozenset(["SELECT", "WHERE", "GROUP", "HAVING", "QUALIFY", "ORDER", "LIMIT", "WINDOW"])
_CASE_PARTS = frozenset(("WHEN", "THEN", "ELSE"))
_TOKEN = re.compile(
    r"""(?P<blank>\s++|--[^\r\n]*+(?:\r?\n|\Z))
    |(?P<comment>/\*)
    |(?P<text>[eE]'(?:[^'\\]|\\.|'')*+'|'(?:[^']|'')*+')
    |(?P<name>"(?:[^"]|"")*+"|`(?:[^`]|``)*+`)
    |(?P<dollar>(?<![\w@\#$])\$\w*+\$)
    |(?P<number>\d++(?:\.\d++)?+(?:[eE][+-]?+\d++)?+)
    |(?P<word>\w++)
    |(?P<symbol>(?!--)[^'"`$])""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_MARK = re.compile(r"/\*|\*/")
# Literals such as q'[...]' end at a mark of their own.
_QUOTED_WORDS = frozenset(("Q", "NQ"))
_BEFORE_NAMES = frozenset(("", ",", "WITH", "RECURSIVE", "FROM", "JOIN", "AS"))


def check_statement(statement: str) -> None:
    """InvalidRequestError if the statement is too deep for the engine, or samples a table: the
    engine would silently give all rows.
    """
    depth = _Depth()
    before = previous = ""
    for kind, token in _tokens(statement):
        is_sample = token == "(" and previous == "SAMPLE" and before not in _BEFORE_NAMES
        if token == "TABLESAMPLE" or is_sample:
            raise InvalidRequestError("TABLESAMPLE is not supported")
        if kind == "word":
            depth.add_word(token)
        elif kind == "symbol":
            depth.add_symbol(token)
        before, previous = previous, token


@dataclass(slots=True)
class _Level:
    """An open parenthesis or CASE. Its items are siblings, so the deepest counts.

    `operators` and `inner` are those of the current item: how many operators stand in a chain,
    and how deep the deepest parenthesis in it is.
    """

    opened_by: str
    operators: int = 0
    inner: int = 0
    deepest: int = 0
    is_from: bool = False

    @property
    def depth(self) -> int:
        return max(self.deepest, self.operators + self.inner)

    def end_item(self) -> None:
        self.deepest = self.depth
        self.operators = self.inner = 0


@dataclass(slots=True)
class _Depth:
    """An upper bound of the depth of the tokens so far.

    `plan` is the cost of all queries and joins, however they are nested: one may refer to another
    by name.
    """

    levels: list[_Level] = field(default_factory=lambda: [_Level("")])
    plan: int = 0

    def add_word(self, word: str) -> None:
        level = self.levels[-1]
        if word in _OPERATORS:
            self._add_operator()
        elif word == "CASE":
            self.levels.append(_Level(word))
        elif word == "END" and level.opened_by == "CASE":
            self._close()
        elif word in _CASE_PARTS:
            level.end_item()
        if cost := _PLAN_COSTS.get(word):
            self._add_plan(cost)
        if word == "FROM" or word in _CLAUSES:
            level.is_from = word == "FROM"

    def add_symbol(self, symbol: str) -> None:
        level = self.levels[-1]
        if symbol in "([{":
            if symbol == "[":  # `a[1][2]` is a chain
                self._add_operator()
            self.levels.append(_Level(symbol))
        elif symbol in ")]}":
            while self.levels[-1].opened_by == "CASE":
                self._close()
            self._close()
        elif symbol == "," and level.is_from:
            self._add_plan(_PLAN_COSTS["JOIN"])
        elif symbol in ",;":
            level.end_item()
        else:
            self._add_operator()

    def _close(self) -> None:
        if len(self.levels) == 1:
            return  # the parser says what is wrong
        depth = self.levels.pop().depth + 1
        self.levels[-1].inner = max(self.levels[-1].inner, depth)
        self._check()

    def _add_operator(self) -> None:
        self.levels[-1].operators += 1
        self._check()

    def _add_plan(self, cost: int) -> None:
        self.plan += cost
        self._check()

    def _check(self) -> None:
        if self.levels[-1].depth + self.plan > _DEPTH_MAX:
            raise InvalidRequestError(
                "the statement has too many operators or joins (expected a depth of at most "
                f"{_DEPTH_MAX:,}): compare with many values by IN (...)"
            )


def _tokens(statement: str) -> Iterator[tuple[str, str]]:
    """Kinds and tokens, words in upper case, without blanks and comments."""
    place, word_end = 0, -1
    while place < len(statement):
        found = _TOKEN.match(statement, place)
        if found is None or (found.lastgroup == "text" and place == word_end):
            raise InvalidRequestError(f"wrong SQL: unexpected {statement[place : place + 50]!r}")
        kind, token, end = str(found.lastgroup), found[0], found.end()
        if kind == "comment":
            end = _comment_end(statement, end)
        elif kind == "dollar":
            closed = statement.find(token, end)
            if closed < 0:
                raise InvalidRequestError(f"wrong SQL: no end of {token[:50]}")
            end = closed + len(token)
        if kind == "word":
            token = token.upper()
            word_end = end if token in _QUOTED_WORDS else -1
        if kind not in {"blank", "comment"}:
            yield kind, token
        place = end


def _comment_end(statement: str, place: int) -> int:
    """Where the comment ends that opened before this place; comments nest."""
    depth = 1
    for mark in _COMMENT_MARK.finditer(statement, place):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    raise InvalidRequestError("wrong SQL: a comment has no end")
