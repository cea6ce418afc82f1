"""The operators and functions of JSON in the text of a statement.

The engine parses `->`, `->>` and `@>`, but its planner has no meaning for them, and its functions
have a fixed number of arguments. So a statement is rewritten: `doc -> 'a' ->> 0` becomes
`json_as_text(doc, '$.a[0]')`. A *unit* is a token, or several that were rewritten. An *operand* is
what stands before an operator: a column, literal, call, CASE or parenthesis, with its casts.
Operators bind as in PostgreSQL: wherever that would not be what stands nearest, parentheses are
expected.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from sleeper.datafiles.documents.path import Step, format_path, parse_step
from sleeper.datafiles.json_syntax import NotJsonError, check_json
from sleeper.errors import InvalidRequestError
from sleeper.query.sql.tokens import Token, read_tokens

CONTAINS = "json_contains"
PATH_FUNCTIONS = frozenset(
    (
        "json_as_text",
        "json_each",
        "json_elements",
        "json_get",
        "json_get_bool",
        "json_get_float",
        "json_get_int",
        "json_get_json",
        "json_get_str",
        "json_keys",
        "json_length",
        "json_typeof",
    )
)
"""Functions of a document and a path, of which each argument is a part."""
_OPERATORS = {"->": "json_get", "->>": "json_as_text", "@>": CONTAINS}
_WITH_PATH_AFTER = frozenset(("json_get", "json_get_json"))
_OPENERS = frozenset(("(", "[", "CASE"))
_OPERATOR_PARTS = frozenset("<>=!@#&|~?")
_DIGITS_MAX = 18
# Those that bind tighter than operators of JSON. Before an operand, those that bind as tight count.
_TIGHT_AFTER = frozenset("+-*/%^:.[")
_TIGHT_BEFORE = _TIGHT_AFTER | frozenset("|&~#@?")
# The engine marks a column as JSON if it is in one of these and one of its parts is.
_MIXING_WORDS = frozenset(("UNION", "RECURSIVE", "OVER"))
# Words before a parenthesis that is not one of a call.
# fmt: off
_NO_FUNCTIONS = frozenset((
    "ALL", "AND", "ANY", "AS", "BETWEEN", "BY", "CASE", "DISTINCT", "ELSE", "ESCAPE", "EXISTS",
    "EXPLAIN", "FROM", "HAVING", "ILIKE", "IN", "IS", "LIKE", "LIMIT", "NOT", "OFFSET", "ON", "OR",
    "QUALIFY", "REGEXP", "RLIKE", "SELECT", "SOME", "THEN", "TO", "USING", "VALUES", "WHEN",
    "WHERE", "XOR",
))
# fmt: on


@dataclass(frozen=True, slots=True)
class _Unit:
    """A part of the statement, with the blanks before it and its first position.

    The unit at `opener` is the parenthesis or CASE that this one closes. A rewritten call of
    `function` has its `document` and its `path`.
    """

    kind: str
    text: str
    before: str
    start: int
    opener: int = -1
    function: str = ""
    document: str = ""
    path: tuple[Step, ...] = ()

    @property
    def whole_text(self) -> str:
        return self.before + self.text


@dataclass(slots=True)
class _Group:
    """An open parenthesis or CASE, and its commas."""

    opener: int
    commas: list[int] = field(default_factory=list)


def rewrite_json(statement: str, parameters: Mapping[str, pa.Scalar]) -> str:
    """Returns the statement with calls of functions of the engine instead of operators of JSON.

    `parameters` are the values of names and indexes. Raises `InvalidRequestError` for an operator
    or function with other arguments.
    """
    if not any(each in statement.lower() for each in ("->", "@>", "json_")):
        return statement
    rewriter = _Rewriter(statement, parameters)
    return rewriter.rewrite()


def mixes_json(statement: str) -> bool:
    """Returns whether a column may be marked as JSON and have other text."""
    return any(each.text in _MIXING_WORDS for each in read_tokens(statement))


class _Rewriter:
    """Reads the tokens of a statement in order, and replaces the units that were read so far."""

    def __init__(self, statement: str, parameters: Mapping[str, pa.Scalar]) -> None:
        self._statement = statement
        self._parameters = parameters
        self._tokens = list(read_tokens(statement))
        self._units: list[_Unit] = []
        self._groups = [_Group(-1)]
        self._end = 0

    def rewrite(self) -> str:
        index = 0
        while index < len(self._tokens):
            operator = self._operator(index)
            after = self._rewrite_operator(operator, index) if operator else index
            if after == index:
                self._add(self._tokens[index])
                after += 1
            index = after
        rest = self._statement[self._end :]
        return "".join(each.whole_text for each in self._units) + rest

    def _add(self, token: Token) -> None:
        before = self._statement[self._end : token.start]
        self._end = token.end
        text = self._statement[token.start : token.end]
        opener, group = -1, self._groups[-1]
        if token.text in _OPENERS:
            self._groups.append(_Group(len(self._units)))
        elif token.text in {")", "]"} or (token.text == "END" and self._is_in_case()):
            opener = group.opener
            if opener >= 0:
                self._groups.pop()
        elif token.text == ",":
            group.commas.append(len(self._units))
        self._units.append(_Unit(token.kind, text, before, token.start, opener))
        if token.text == ")" and opener >= 0:
            self._rewrite_call(group)

    def _is_in_case(self) -> bool:
        opener = self._groups[-1].opener
        return opener >= 0 and self._units[opener].text.upper() == "CASE"

    def _operator(self, index: int) -> str:
        """Returns the operator that begins at the token, if one does."""
        text, tokens = "", self._tokens
        if tokens[index].text not in "-@":
            return ""
        end = tokens[index].start
        if index and tokens[index - 1].end == end and tokens[index - 1].text in _OPERATOR_PARTS:
            return ""
        for token in tokens[index : index + 3]:
            if token.start == end:
                text, end = text + token.text, token.end
        return next((each for each in ("->>", "->", "@>") if text.startswith(each)), "")

    def _rewrite_operator(self, operator: str, index: int) -> int:
        """Replaces the operand before an operator by a call.

        Returns the index of the token after the operator and its literal, or the same index for
        an operator of lists.
        """
        name, first = _OPERATORS[operator], self._tokens[index]
        literal, after = self._literal_at(index + len(operator))
        if name == CONTAINS and not isinstance(literal, str):
            return index
        if literal is None:
            raise _error(operator, first.start, "expected a text or an integer after it")
        if name == CONTAINS:
            after = self._after_cast(after)
        start = self._operand_start(operator, first.start)
        following = "".join(each.text for each in self._tokens[after : after + 2])
        if following[:1] in _TIGHT_AFTER and following not in {"->", "@>"}:
            raise _error(
                operator, first.start, f"expected parentheses, because {following[0]} binds tighter"
            )
        self._end = self._tokens[after - 1].end
        self._replace(start, name, self._units[start:], [literal], first.start)
        return after

    def _after_cast(self, index: int) -> int:
        """Returns the index after a cast to JSON, which changes no literal."""
        cast = "".join(each.text for each in self._tokens[index : index + 3])
        return index + 3 if cast in {"::JSON", "::JSONB"} else index

    def _literal_at(self, index: int) -> tuple[Step | None, int]:
        tokens = self._tokens[index : index + 2]
        if tokens and tokens[0].text == "-":
            return self._literal(tokens), index + 2
        return self._literal(tokens[:1]), index + 1

    def _literal(self, parts: Sequence[Token | _Unit]) -> Step | None:
        """Returns the text or integer that the parts are; None if they are another expression."""
        if not parts or len(parts) > 2:
            return None
        last = parts[-1]
        if last.kind == "number" and last.text.isdigit() and len(last.text) <= _DIGITS_MAX:
            is_negative = len(parts) == 2 and parts[0].text == "-"
            return -int(last.text) if is_negative else int(last.text) if len(parts) == 1 else None
        if len(parts) == 2:
            return None
        if last.kind == "text" and last.text.startswith("'"):
            return last.text[1:-1].replace("''", "'")
        if last.kind == "parameter":
            value = self._parameters[last.text[1:]].as_py()
            is_index = isinstance(value, int) and not isinstance(value, bool)
            has_digits = is_index and abs(value) < 10**_DIGITS_MAX
            return value if has_digits or isinstance(value, str) else None
        return None

    def _operand_start(self, operator: str, position: int) -> int:
        """Returns the index of the first unit of the operand that the units end with."""
        floor = self._groups[-1].opener + 1
        index = len(self._units)
        while True:
            index = self._primary_start(index - 1, floor)
            if index < floor:
                raise _error(operator, position, "expected a document before it")
            if index - 3 < floor or self._texts(index - 2, index) != "::":
                break
            index -= 2
        if index > floor:
            before = self._units[index - 1]
            if before.kind == "symbol" and before.text in _TIGHT_BEFORE:
                raise _error(
                    operator, position, f"expected parentheses, because {before.text} is before it"
                )
        return index

    def _primary_start(self, index: int, floor: int) -> int:
        """Returns the first index of the value that ends at `index`, -1 if there is none."""
        while index >= floor:
            unit = self._units[index]
            if unit.text == "]" and unit.opener > floor:
                index = unit.opener - 1
                continue
            if unit.opener >= 0:
                index = self._call_start(unit, floor)
            elif unit.kind == "symbol":
                return -1
            if index - 2 < floor or self._units[index - 1].text != ".":
                return index
            index -= 2
        return -1

    def _call_start(self, last: _Unit, floor: int) -> int:
        """Returns the index of the name of the call that ends with a unit, or of its opener."""
        before = self._units[last.opener - 1] if last.opener > floor else None
        is_call = before and last.text == ")" and before.kind in {"word", "name"}
        if not before or not is_call or before.text.upper() in _NO_FUNCTIONS:
            return last.opener
        return last.opener - 1

    def _texts(self, start: int, stop: int) -> str:
        return "".join(each.text for each in self._units[start:stop])

    def _rewrite_call(self, group: _Group) -> None:
        """Rewrites the call that ends with the last unit, if it is one of a function of JSON."""
        start = group.opener - 1
        name = _function_name(self._units[start]) if start >= 0 else ""
        is_qualified = start > 0 and self._units[start - 1].text == "."
        if is_qualified or (name not in PATH_FUNCTIONS and name != CONTAINS):
            return
        position = self._units[start].start
        bounds = [group.opener, *group.commas, len(self._units) - 1]
        arguments = [self._units[first + 1 : last] for first, last in itertools.pairwise(bounds)]
        if not arguments[0] or (name == CONTAINS and len(arguments) != 2):
            expected = "a document and a JSON text" if name == CONTAINS else "a document and a path"
            raise _error(name, position, f"expected {expected}")
        literals = [self._literal(each) for each in arguments[1:]]
        for number, (literal, units) in enumerate(zip(literals, arguments[1:], strict=True), 2):
            if literal is None or (name == CONTAINS and not isinstance(literal, str)):
                where = units[0].start if units else position
                kind = "text" if name == CONTAINS else "text or an integer"
                raise _error(name, where, f"argument {number} is no literal (expected a {kind})")
        self._replace(start, name, arguments[0], [x for x in literals if x is not None], position)

    def _replace(
        self, start: int, name: str, document: list[_Unit], literals: list[Step], position: int
    ) -> None:
        """Replaces the units from `start` by a call."""
        before = self._units[start].before
        text = "".join(each.whole_text for each in document).strip()
        if name == CONTAINS:
            _check_candidate(name, str(literals[0]), position)
            unit = _Unit("call", f"{name}({text}, {_quote(str(literals[0]))})", before, position)
        else:
            path = _path(name, literals, position)
            inner = document[0] if len(document) == 1 else None
            if inner and inner.function in _WITH_PATH_AFTER:
                text, path = inner.document, (*inner.path, *path)
            call = f"{name}({text}, {_quote(format_path(path))})"
            unit = _Unit("call", call, before, position, -1, name, text, path)
        self._units[start:] = [unit]


def _path(name: str, literals: list[Step], position: int) -> tuple[Step, ...]:
    try:
        parts = [parse_step(each) if isinstance(each, str) else (each,) for each in literals]
    except InvalidRequestError as error:
        raise _error(name, position, str(error)) from error
    return tuple(step for part in parts for step in part)


def _check_candidate(name: str, text: str, position: int) -> None:
    try:
        check_json(pa.array([text]))
    except NotJsonError as error:
        raise _error(name, position, f"{error}: {text[:200]!r}") from error


def _function_name(unit: _Unit) -> str:
    if unit.kind == "word":
        return unit.text.lower()
    return unit.text[1:-1] if unit.kind == "name" else ""


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _error(name: str, position: int, reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"invalid SQL: {name} at character {position + 1}: {reason}")
