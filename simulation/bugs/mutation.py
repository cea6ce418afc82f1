"""One-line mutations of the product's code.

A *mutation* replaces one line of a function or of a constant of a module. The source text of the
module is mutated and compiled, and the code of the function is replaced by that of the same
function there, so everything that has imported the function runs the mutated one.
"""

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import CodeType, FunctionType, ModuleType
from typing import Any, Protocol, cast


class MutationError(Exception):
    """A mutation does not apply, because the product's code has changed."""


class Definition(Protocol):
    """What a line belongs to in the syntax of a module."""

    lineno: int
    end_lineno: int


@dataclass(frozen=True, slots=True)
class Mutation:
    """Replaces the only such line of a function or constant.

    `target` is `module:function`, `module:Class.method`, `module:Class.field` or `module:CONSTANT`.
    Lines are without indentation.
    """

    target: str
    line: str
    replacement: str

    @property
    def module(self) -> ModuleType:
        """The module, imported."""
        return import_module(self.target.partition(":")[0])

    @property
    def names(self) -> list[str]:
        """The names that lead to the target in its module."""
        return self.target.partition(":")[2].split(".")

    def mutated_source(self) -> str:
        """Returns the source text of the module with the line replaced.

        MutationError if the target does not have the line exactly once.
        """
        lines = inspect.getsource(self.module).splitlines(keepends=True)
        node = self._find_definition(ast.parse("".join(lines)))
        numbers = [
            number
            for number in range(node.lineno - 1, node.end_lineno)
            if lines[number].strip() == self.line
        ]
        if len(numbers) != 1:
            raise MutationError(
                f"{self.target} has {len(numbers)} lines {self.line!r} (expected 1)"
            )
        lines[numbers[0]] = lines[numbers[0]].replace(self.line, self.replacement)
        return "".join(lines)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Runs the product with the mutation in the block."""
        source, module = self.mutated_source(), self.module
        owner: Any = module
        for name in self.names[:-1]:
            owner = vars(owner)[name]
        before = vars(owner)[self.names[-1]]
        function = _find_function(before)
        if function is None:
            value = self._evaluate(source, owner)
            with _rebound(owner, self.names[-1], before, value):
                yield
            return
        code = _find_code(compile(source, str(module.__file__), "exec"), ".".join(self.names))
        original, function.__code__ = function.__code__, code
        try:
            yield
        finally:
            function.__code__ = original

    def _find_definition(self, tree: ast.Module) -> Definition:
        body: list[ast.stmt] = tree.body
        node: ast.stmt | None = None
        for name in self.names:
            node = next((each for each in body if name in _names_of(each)), None)
            if node is None:
                raise MutationError(f"{self.target} does not exist")
            body = getattr(node, "body", [])
        assert node is not None
        return cast(Definition, node)

    def _evaluate(self, source: str, owner: Any) -> Any:
        """Returns the mutated value of a constant or class field."""
        node: Any = self._find_definition(ast.parse(source))
        expression = compile(ast.Expression(node.value), str(self.module.__file__), "eval")
        return eval(expression, vars(self.module), dict(vars(owner)))


def _names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign):
        return [each.id for each in node.targets if isinstance(each, ast.Name)]
    if isinstance(node, ast.AnnAssign):
        return [node.target.id] if isinstance(node.target, ast.Name) else []
    return [name] if (name := getattr(node, "name", None)) else []


def _find_function(value: Any) -> FunctionType | None:
    """Returns the function of the product below its decorators."""
    value = getattr(value, "fget", None) or getattr(value, "func", None) or value
    value = inspect.unwrap(cast(Callable[..., Any], value)) if callable(value) else value
    value = getattr(value, "__func__", value)
    return value if isinstance(value, FunctionType) else None


def _find_code(code: CodeType, qualified_name: str) -> CodeType:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if each.co_qualname == qualified_name:
                return each
            if qualified_name.startswith(f"{each.co_qualname}."):
                return _find_code(each, qualified_name)
    raise MutationError(f"there is no function {qualified_name}")


@contextmanager
def _rebound(owner: Any, name: str, before: Any, value: Any) -> Iterator[None]:
    """Gives the name another value in its owner, and in the product's modules that import it."""
    modules = [each for key, each in sorted(sys.modules.items()) if key.startswith("sleeper.")]
    owners = [owner, *(each for each in modules if vars(each).get(name) is before)]
    for each in owners:
        setattr(each, name, value)
    try:
        yield
    finally:
        for each in owners:
            setattr(each, name, before)
