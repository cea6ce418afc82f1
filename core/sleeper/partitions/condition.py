"""Conditions on row key fields, as text: `city = 'Oslo' AND day BETWEEN 3 AND 5`.

    condition:   conjunction [OR conjunction]...
    conjunction: term [AND term]...
    term:        ( condition )
               | FIELD = VALUE         also <, <=, >, >=
               | FIELD BETWEEN VALUE AND VALUE
               | FIELD IN ( VALUE [, VALUE]... )
    FIELD:       city, or `city` in backticks
    VALUE:       'text', 12, 1.5, X'0a1b', TRUE or FALSE; for times and dates also
                 TIMESTAMP '2013-01-31 05:15:00' and DATE '2013-01-31', in UTC

A condition is exactly a list of regions. Whatever is not is refused, because a delete by a region
that is larger than its condition would delete other rows.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product

from sleeper.errors import InvalidRequestError
from sleeper.partitions.json import EmptyRangeError, make_range
from sleeper.partitions.region import Range, Region, whole_region
from sleeper.schema.key_values import check_key_value
from sleeper.schema.model import DecimalType, Field, KeyValue, PrimitiveType, Schema, type_name

_DEPTH_MAX = 20
_REGIONS_MAX = 100_000
_SHOWN_CHARACTERS_MAX = 40
_TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*')
    | [xX]'(?P<bytes>[^']*)'
    | (?P<number>[+-]?[0-9]+)(?![\w.])
    | (?P<decimal>[+-]?[0-9]+\.[0-9]+)(?![\w.])
    | `(?P<quoted>(?:[^`]|``)+)`
    | (?P<word>[^\W\d]\w*)
    | (?P<sign><=|>=|<>|!=|=|<|>|\(|\)|,)""",
    re.VERBOSE,
)
_SPACE = re.compile(r"\s*")
_KEYWORDS = frozenset({"AND", "OR", "BETWEEN", "IN", "NOT", "LIKE", "IS", "NULL"})
_FLAGS = {"TRUE": True, "FALSE": False}
_TYPES_OF_LITERALS = {"TIMESTAMP": PrimitiveType.TIMESTAMP, "DATE": PrimitiveType.DATE}


@dataclass(frozen=True, slots=True)
class _Token:
    """A token of the kind that `_TOKEN` names, or `keyword`. Its value is parsed."""

    kind: str
    value: KeyValue | Decimal | bool
    start: int


def parse_condition(schema: Schema, text: str) -> tuple[Region, ...]:
    """Returns the regions of the keys that fulfil a condition on row key fields.

    They may overlap, and there are none if no key does. InvalidRequestError names what is wrong,
    or what no region can express.
    """
    parser = _Parser(schema, text, list(_tokens(text)))
    regions = parser.parse_alternatives(0)
    parser.expect_end()
    return tuple(regions)


def _tokens(text: str) -> Iterator[_Token]:
    position = _skip_space(text, 0)
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _fault(text, position, "text in '', a number, X'' or a field")
        kind = match.lastgroup or ""
        yield _token(text, kind, match[kind], position)
        position = _skip_space(text, match.end())


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()


def _token(text: str, kind: str, value: str, position: int) -> _Token:
    match kind:
        case "text" if "\\" in value:
            raise _fault(
                text, position, "text without backslashes, which Spark and SQL read in two ways"
            )
        case "text":
            return _Token("value", value[1:-1].replace("''", "'"), position)
        case "bytes":
            try:
                return _Token("value", bytes.fromhex(value), position)
            except ValueError:
                raise _fault(text, position, "pairs of hexadecimal digits in X''") from None
        case "number":
            return _Token("value", int(value[:_SHOWN_CHARACTERS_MAX]), position)
        case "decimal":
            return _Token("value", Decimal(value), position)
        case "quoted":
            return _Token("field", value.replace("``", "`"), position)
        case "word":
            return _word_token(value, position)
    return _Token(kind, value, position)


def _word_token(value: str, position: int) -> _Token:
    upper = value.upper()
    if upper in _FLAGS:
        return _Token("value", _FLAGS[upper], position)
    return (
        _Token("keyword", upper, position)
        if upper in _KEYWORDS
        else _Token("field", value, position)
    )


def _fault(text: str, position: int, expected: str) -> InvalidRequestError:
    shown = text[position : position + _SHOWN_CHARACTERS_MAX]
    result = f"{shown!r} at character {position + 1}" if shown else "its end"
    return InvalidRequestError(f"condition: {result} (expected {expected})")


class _Parser:
    """A recursive descent over the tokens."""

    def __init__(self, schema: Schema, text: str, tokens: Sequence[_Token]) -> None:
        self._schema = schema
        self._text = text
        self._tokens = tokens
        self._place = 0

    def parse_alternatives(self, depth: int) -> list[Region]:
        """Parses a condition."""
        if depth > _DEPTH_MAX:
            raise self._fault(f"at most {_DEPTH_MAX} nested parentheses")
        regions = self._parse_conjunction(depth)
        while self._take("keyword", "OR"):
            regions = [*regions, *self._parse_conjunction(depth)]
            self._check_size(len(regions))
        return regions

    def expect_end(self) -> None:
        """Raises InvalidRequestError if a token is left."""
        if self._place < len(self._tokens):
            raise self._fault("AND, OR or the end")

    def _parse_conjunction(self, depth: int) -> list[Region]:
        regions = self._parse_term(depth)
        while self._take("keyword", "AND"):
            others = self._parse_term(depth)
            self._check_size(len(regions) * len(others))
            pairs = (a.intersect(b) for a, b in product(regions, others))
            regions = [region for region in pairs if region is not None]
        return regions

    def _parse_term(self, depth: int) -> list[Region]:
        if self._take("sign", "("):
            regions = self.parse_alternatives(depth + 1)
            self._expect("sign", ")")
            return regions
        field = self._parse_field()
        ranges = self._parse_comparison(field)
        return [self._region(field, within) for within in ranges if within is not None]

    def _parse_field(self) -> Field:
        token = self._next("field", "a row key field")
        for field in self._schema.row_keys:
            if field.name == token.value:
                return field
        names = ", ".join(field.name for field in self._schema.row_keys)
        raise InvalidRequestError(
            f"condition: {token.value!r:.{_SHOWN_CHARACTERS_MAX}} at character {token.start + 1} "
            f"is not a row key field (expected {names}: rows are deleted by key only)"
        )

    def _parse_comparison(self, field: Field) -> list[Range | None]:
        if self._take("keyword", "BETWEEN"):
            low = self._parse_value(field)
            self._expect("keyword", "AND")
            return [_range(field, low, self._parse_value(field), True, True)]
        if self._take("keyword", "IN"):
            self._expect("sign", "(")
            values = [self._parse_value(field)]
            while self._take("sign", ","):
                values.append(self._parse_value(field))
            self._expect("sign", ")")
            return [_range(field, value, value, True, True) for value in values]
        for sign, compare in _COMPARISONS.items():
            if self._take("sign", sign):
                return [compare(field, self._parse_value(field))]
        raise self._fault("=, <, <=, >, >=, BETWEEN or IN")

    def _parse_value(self, field: Field) -> KeyValue:
        self._skip_literal_type(field)
        token = self._next("value", "a value: 'text', a number, or X'0a1b'")
        is_time = field.type in _TYPES_OF_LITERALS.values()
        if is_time and not isinstance(token.value, str):
            # Spark and SQL read numbers as seconds or days, or not at all.
            raise _fault(self._text, token.start, f"text of a {type_name(field.type)}")
        if isinstance(token.value, Decimal) and not isinstance(field.type, DecimalType):
            raise _fault(self._text, token.start, f"a value of {type_name(field.type)}")
        try:
            return check_key_value(field, token.value)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"condition: {error}") from error

    def _skip_literal_type(self, field: Field) -> None:
        """Skips the type of a literal such as DATE '2013-01-31', if it is that of the field."""
        if self._place + 1 < len(self._tokens):
            token, after = self._tokens[self._place : self._place + 2]
            name = str(token.value).upper()
            if token.kind == "field" and after.kind == "value":
                if _TYPES_OF_LITERALS.get(name) is not field.type:
                    raise self._fault(f"a value of {type_name(field.type)}")
                self._place += 1

    def _region(self, field: Field, within: Range) -> Region:
        whole = whole_region(self._schema)
        fields = zip(self._schema.row_keys, whole.ranges, strict=True)
        return Region(tuple(within if each == field else every for each, every in fields))

    def _take(self, kind: str, value: str) -> bool:
        if self._place < len(self._tokens):
            token = self._tokens[self._place]
            if (token.kind, token.value) == (kind, value):
                self._place += 1
                return True
        return False

    def _expect(self, kind: str, value: str) -> None:
        if not self._take(kind, value):
            raise self._fault(value)

    def _next(self, kind: str, expected: str) -> _Token:
        if self._place == len(self._tokens) or self._tokens[self._place].kind != kind:
            raise self._fault(expected)
        token = self._tokens[self._place]
        self._place += 1
        return token

    def _check_size(self, regions: int) -> None:
        if regions > _REGIONS_MAX:
            raise InvalidRequestError(
                f"condition: {regions:,} combinations (expected at most {_REGIONS_MAX:,})"
            )

    def _fault(self, expected: str) -> InvalidRequestError:
        is_end = self._place == len(self._tokens)
        start = len(self._text) if is_end else self._tokens[self._place].start
        return _fault(self._text, start, expected)


def _range(
    field: Field, low: KeyValue | None, high: KeyValue | None, with_low: bool, with_high: bool
) -> Range | None:
    try:
        return make_range(field, low, high, with_low, with_high)
    except EmptyRangeError:
        return None


_COMPARISONS: dict[str, Callable[[Field, KeyValue], Range | None]] = {
    "=": lambda field, value: _range(field, value, value, True, True),
    "<": lambda field, value: _range(field, None, value, True, False),
    "<=": lambda field, value: _range(field, None, value, True, True),
    ">": lambda field, value: _range(field, value, None, False, True),
    ">=": lambda field, value: _range(field, value, None, True, True),
}
