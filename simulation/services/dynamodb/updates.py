"""Update expressions of DynamoDB: `SET`, `REMOVE`, `ADD` and `DELETE`.

All operands are evaluated on the item before the update.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from simulation.services.dynamodb.parser import Parser, Path, Scope
from simulation.services.dynamodb.values import (
    Item,
    Value,
    add_numbers,
    invalid,
    number,
    number_value,
    value_type,
)

_CLAUSES = ("SET", "REMOVE", "ADD", "DELETE")
_UPDATES_MAX = 4096
Expression = Callable[[Scope], Value]


@dataclass(frozen=True, slots=True)
class Action:
    """A change of one path. `evaluate` returns its new value, None to remove it."""

    path: Path
    evaluate: Callable[[Scope], Value | None]


@dataclass(frozen=True, slots=True)
class Update:
    """The actions of an expression and its placeholders."""

    actions: tuple[Action, ...]
    placeholders: frozenset[str]

    def apply(self, scope: Scope, keys: frozenset[str]) -> Item:
        """Returns the changed item. An error if it would change an attribute of the key."""
        paths = [scope.path(action.path) for action in self.actions]
        _check_paths(paths, keys)
        values = [action.evaluate(scope) for action in self.actions]
        item = scope.item
        # Removals from a list come last and from its end, so that they keep each other's positions.
        order = sorted(
            range(len(paths)), key=lambda i: (values[i] is None, [-1 * _rank(p) for p in paths[i]])
        )
        for i in order:
            item = _changed(item, paths[i], values[i])
        return item


def _rank(part: str | int) -> int:
    return part if isinstance(part, int) else 0


def _check_paths(paths: list[Path], keys: frozenset[str]) -> None:
    for i, path in enumerate(paths):
        if path[0] in keys:
            raise invalid(
                f"One or more parameter values were invalid: Cannot update attribute {path[0]}. "
                "This attribute is part of the key"
            )
        for other in paths[:i]:
            shared = min(len(path), len(other))
            if path[:shared] == other[:shared]:
                raise invalid(
                    "Invalid UpdateExpression: Two document paths overlap with each other; must "
                    f"remove or rewrite one of these paths; path one: {list(other)}, path two: "
                    f"{list(path)}"
                )


def _changed(item: Item, path: Path, value: Value | None) -> Item:
    first, rest = str(path[0]), path[1:]
    if not rest:
        return _with_member(item, first, value)
    if first not in item:
        raise _invalid_path()
    return {**item, first: _changed_value(item[first], rest, value)}


def _with_member(members: Item, name: str, value: Value | None) -> Item:
    if value is not None:
        return {**members, name: value}
    return {n: v for n, v in members.items() if n != name}


def _changed_value(container: Value, path: Path, value: Value | None) -> Value:
    first, rest = path[0], path[1:]
    if isinstance(first, int):
        members = list(container.get("L", ()))
        if "L" not in container or (rest and first >= len(members)):
            raise _invalid_path()
        if rest:
            members[first] = _changed_value(members[first], rest, value)
        elif value is None:
            members[first : first + 1] = []
        else:
            members[first : first + 1] = [value]
        return {"L": members}
    if "M" not in container:
        raise _invalid_path()
    return {"M": _changed(container["M"], (first, *rest), value)}


def _invalid_path() -> Exception:
    return invalid("The document path provided in the update expression is invalid for update")


@lru_cache(_UPDATES_MAX)
def parse_update(text: str) -> Update:
    """Returns the update of an expression."""
    parser = Parser("UpdateExpression", text)
    actions: list[Action] = []
    seen: set[str] = set()
    while parser.next:
        clause = parser.next.upper()
        if clause not in _CLAUSES or clause in seen:
            raise parser.error()
        seen.add(clause)
        parser.take()
        actions.append(_PARSERS[clause](parser))
        while parser.accept(","):
            actions.append(_PARSERS[clause](parser))
    return Update(tuple(actions), frozenset(parser.placeholders))


def _set(parser: Parser) -> Action:
    path = parser.path()
    parser.expect("=")
    left = _operand(parser)
    if parser.next not in {"+", "-"}:
        return Action(path, left)
    sign = 1 if parser.take() == "+" else -1
    right = _operand(parser)
    return Action(path, lambda scope: add_numbers(left(scope), right(scope), sign))


def _remove(parser: Parser) -> Action:
    return Action(parser.path(), lambda _scope: None)


def _add(parser: Parser) -> Action:
    path, placeholder = parser.path(), parser.value()

    def evaluate(scope: Scope) -> Value:
        before, added = scope.find(path), scope.value(placeholder)
        kind = value_type(added)
        if kind == "N":
            return add_numbers(before or {"N": "0"}, added, 1)
        if kind not in {"SS", "NS", "BS"} or (before is not None and kind not in before):
            raise invalid("An operand in the update expression has an incorrect data type")
        return {kind: _members(kind, (before or {kind: []})[kind] + added[kind])}

    return Action(path, evaluate)


def _delete(parser: Parser) -> Action:
    path, placeholder = parser.path(), parser.value()

    def evaluate(scope: Scope) -> Value | None:
        before, removed = scope.find(path), scope.value(placeholder)
        kind = value_type(removed)
        if kind not in {"SS", "NS", "BS"} or (before is not None and kind not in before):
            raise invalid("An operand in the update expression has an incorrect data type")
        others = set(_members(kind, removed[kind]))
        left = [m for m in _members(kind, (before or {kind: []})[kind]) if m not in others]
        return {kind: left} if left else None

    return Action(path, evaluate)


def _members(kind: str, members: list[Any]) -> list[Any]:
    """Returns each member once, numbers in one form."""
    if kind == "NS":
        members = [number_value(number(each))["N"] for each in members]
    return list(dict.fromkeys(members))


def _operand(parser: Parser) -> Expression:
    if parser.next[:1] == ":":
        placeholder = parser.value()
        return lambda scope: scope.value(placeholder)
    if parser.next == "if_not_exists":
        parser.take()
        parser.expect("(")
        path = parser.path()
        parser.expect(",")
        default = _operand(parser)
        parser.expect(")")
        return lambda scope: scope.find(path) or default(scope)
    if parser.next == "list_append":
        parser.take()
        parser.expect("(")
        first = _operand(parser)
        parser.expect(",")
        second = _operand(parser)
        parser.expect(")")
        return lambda scope: _joined(first(scope), second(scope))
    return _attribute(parser.path())


def _attribute(path: Path) -> Expression:
    def evaluate(scope: Scope) -> Value:
        value = scope.find(path)
        if value is None:
            raise invalid(
                "The provided expression refers to an attribute that does not exist in the item"
            )
        return value

    return evaluate


def _joined(first: Value, second: Value) -> Value:
    if "L" not in first or "L" not in second:
        raise invalid("An operand in the update expression has an incorrect data type")
    return {"L": [*first["L"], *second["L"]]}


_PARSERS: dict[str, Callable[[Parser], Action]] = {
    "SET": _set,
    "REMOVE": _remove,
    "ADD": _add,
    "DELETE": _delete,
}
