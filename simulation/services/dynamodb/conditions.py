"""Condition, filter and key-condition expressions of DynamoDB.

A condition is a tree of nodes, each with `holds`. An operand is a path, a value or the size of a
path's value; it is None if the item has no such attribute.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from simulation.services.dynamodb.parser import Parser, Path, Scope
from simulation.services.dynamodb.values import Value, are_equal, invalid, is_ordered, value_type

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_SETS = {"SS": "S", "NS": "N", "BS": "B"}
_TREES_MAX = 4096


class Operand(Protocol):
    """A value that is compared."""

    def evaluate(self, scope: Scope) -> Value | None:
        """Returns the value, or None."""


class Condition(Protocol):
    """A node of a condition."""

    def holds(self, scope: Scope) -> bool:
        """Returns whether the condition holds for the item."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """The value at a path."""

    path: Path

    def evaluate(self, scope: Scope) -> Value | None:
        return scope.find(self.path)


@dataclass(frozen=True, slots=True)
class Given:
    """A value of the request."""

    placeholder: str

    def evaluate(self, scope: Scope) -> Value | None:
        return scope.value(self.placeholder)


@dataclass(frozen=True, slots=True)
class Size:
    """The length of a text or bytes, or the number of members."""

    path: Path

    def evaluate(self, scope: Scope) -> Value | None:
        value = scope.find(self.path)
        if value is None or value_type(value) in {"N", "BOOL", "NULL"}:
            return None
        (content,) = value.values()
        return {"N": str(len(content))}


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left <operator> right`."""

    operator: str
    left: Operand
    right: Operand

    def holds(self, scope: Scope) -> bool:
        left, right = self.left.evaluate(scope), self.right.evaluate(scope)
        if self.operator == "<>":
            # A missing attribute differs from each value.
            return left is None or right is None or not are_equal(left, right)
        if left is None or right is None:
            return False
        if self.operator == "=":
            return are_equal(left, right)
        return is_ordered(self.operator, left, right)


@dataclass(frozen=True, slots=True)
class Between:
    """`operand BETWEEN low AND high`."""

    operand: Operand
    low: Operand
    high: Operand

    def holds(self, scope: Scope) -> bool:
        value, low, high = (each.evaluate(scope) for each in (self.operand, self.low, self.high))
        if value is None or low is None or high is None:
            return False
        return is_ordered(">=", value, low) and is_ordered("<=", value, high)


@dataclass(frozen=True, slots=True)
class Within:
    """`operand IN (…)`."""

    operand: Operand
    members: tuple[Operand, ...]

    def holds(self, scope: Scope) -> bool:
        value = self.operand.evaluate(scope)
        others = [member.evaluate(scope) for member in self.members]
        return value is not None and any(
            other is not None and are_equal(value, other) for other in others
        )


@dataclass(frozen=True, slots=True)
class Exists:
    """`attribute_exists(path)`, or `attribute_not_exists(path)`."""

    path: Path
    expected: bool

    def holds(self, scope: Scope) -> bool:
        return (scope.find(self.path) is not None) is self.expected


@dataclass(frozen=True, slots=True)
class BeginsWith:
    """`begins_with(operand, prefix)`."""

    operand: Operand
    prefix: Operand

    def holds(self, scope: Scope) -> bool:
        value, prefix = self.operand.evaluate(scope), self.prefix.evaluate(scope)
        if value is None or prefix is None or value_type(value) != value_type(prefix):
            return False
        (content,), (start,) = value.values(), prefix.values()
        return isinstance(content, str | bytes) and bool(content[: len(start)] == start)


@dataclass(frozen=True, slots=True)
class Contains:
    """`contains(operand, part)`: a part of a text or bytes, or a member of a set or list."""

    operand: Operand
    part: Operand

    def holds(self, scope: Scope) -> bool:
        value, part = self.operand.evaluate(scope), self.part.evaluate(scope)
        if value is None or part is None:
            return False
        kind = value_type(value)
        if kind == "L":
            return any(are_equal(each, part) for each in value[kind])
        if kind in _SETS:
            return any(are_equal({_SETS[kind]: each}, part) for each in value[kind])
        return kind in {"S", "B"} and kind in part and bool(part[kind] in value[kind])


@dataclass(frozen=True, slots=True)
class TypeIs:
    """`attribute_type(path, :type)`."""

    path: Path
    type: Operand

    def holds(self, scope: Scope) -> bool:
        value, expected = scope.find(self.path), self.type.evaluate(scope)
        return value is not None and expected is not None and value_type(value) == expected["S"]


@dataclass(frozen=True, slots=True)
class All:
    """`left AND right`."""

    left: Condition
    right: Condition

    def holds(self, scope: Scope) -> bool:
        # Both sides are evaluated, because DynamoDB checks the placeholders of both.
        left, right = self.left.holds(scope), self.right.holds(scope)
        return left and right


@dataclass(frozen=True, slots=True)
class Either:
    """`left OR right`."""

    left: Condition
    right: Condition

    def holds(self, scope: Scope) -> bool:
        left, right = self.left.holds(scope), self.right.holds(scope)
        return left or right


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT condition`."""

    condition: Condition

    def holds(self, scope: Scope) -> bool:
        return not self.condition.holds(scope)


@lru_cache(_TREES_MAX)
def parse_condition(kind: str, text: str) -> tuple[Condition, frozenset[str]]:
    """Returns the tree of a condition and its placeholders. `kind` is the member's name."""
    parser = Parser(kind, text)
    condition = _either(parser)
    parser.end()
    return condition, frozenset(parser.placeholders)


def _either(parser: Parser) -> Condition:
    condition = _all(parser)
    while parser.accept("OR"):
        condition = Either(condition, _all(parser))
    return condition


def _all(parser: Parser) -> Condition:
    condition = _negation(parser)
    while parser.accept("AND"):
        condition = All(condition, _negation(parser))
    return condition


def _negation(parser: Parser) -> Condition:
    return Not(_negation(parser)) if parser.accept("NOT") else _primary(parser)


def _primary(parser: Parser) -> Condition:
    if parser.accept("("):
        condition = _either(parser)
        parser.expect(")")
        return condition
    if parser.next in _FUNCTIONS:
        return _function(parser)
    return _comparison(parser)


_FUNCTIONS = {
    "attribute_exists": 1,
    "attribute_not_exists": 1,
    "attribute_type": 2,
    "begins_with": 2,
    "contains": 2,
}


def _function(parser: Parser) -> Condition:
    name = parser.take()
    parser.expect("(")
    operands: list[Any] = [_operand(parser)]
    while parser.accept(","):
        operands.append(_operand(parser))
    parser.expect(")")
    if len(operands) != _FUNCTIONS[name]:
        raise invalid(f"Invalid expression: Incorrect number of operands for function: {name}")
    if name == "begins_with":
        return BeginsWith(*operands)
    if name == "contains":
        return Contains(*operands)
    if not isinstance(operands[0], Attribute):
        raise invalid(f"Invalid expression: function {name} needs a document path")
    if name == "attribute_type":
        return TypeIs(operands[0].path, operands[1])
    return Exists(operands[0].path, name == "attribute_exists")


def _comparison(parser: Parser) -> Condition:
    left = _operand(parser)
    if parser.accept("BETWEEN"):
        low = _operand(parser)
        parser.expect("AND")
        return Between(left, low, _operand(parser))
    if parser.accept("IN"):
        parser.expect("(")
        members = [_operand(parser)]
        while parser.accept(","):
            members.append(_operand(parser))
        parser.expect(")")
        return Within(left, tuple(members))
    if parser.next not in _COMPARISONS:
        raise parser.error()
    return Comparison(parser.take(), left, _operand(parser))


def _operand(parser: Parser) -> Operand:
    if parser.next[:1] == ":":
        return Given(parser.value())
    if parser.next == "size":
        parser.take()
        parser.expect("(")
        path = parser.path()
        parser.expect(")")
        return Size(path)
    return Attribute(parser.path())
