"""Generates `docs/python-reference.md` from the docstrings of the public Python API.

`python tools/python_reference.py` writes the page to standard output. The public API is the
names in `sleeper.__all__`, the dataclasses that their methods return, and `sleeper.errors`.
Signatures are those of the source text.
"""

import ast
import dataclasses
import inspect
import itertools
import json
import sys
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any, get_args, get_type_hints

import sleeper
import sleeper.api.report_rows
import sleeper.api.rows
import sleeper.api.table_versions
import sleeper.errors
import sleeper.query.sql.parameters

_WIDTH = 88
_HEAD = """# Python reference

This page is generated: `python tools/python_reference.py > docs/python-reference.md`.
[Python](python.md) introduces the API with examples.

`import sleeper` gives the functions and classes of the first two sections. Types that are written
without a module are of this page or of the standard library; `pa` is `pyarrow`.
"""


def reference_page() -> str:
    """Returns the whole page as Markdown."""
    public = [getattr(sleeper, name) for name in sorted(sleeper.__all__)]
    functions = [item for item in public if inspect.isfunction(item)]
    classes = [item for item in public if inspect.isclass(item)]
    results = _results_of([*functions, *(m for item in classes for _, m in _methods(item))])
    sections = [
        _HEAD,
        "## Functions\n",
        *(_function(function, f"sleeper.{function.__name__}", "###") for function in functions),
        "## Classes\n",
        *(_class(item) for item in classes),
        "## Results\n",
        *(_result(result) for result in results),
        "## Types\n",
        *_aliases(sleeper.api.rows),
        *_aliases(sleeper.api.table_versions),
        *_aliases(sleeper.api.report_rows),
        *_aliases(sleeper.query.sql.parameters),
        "## Errors\n",
        "Import them from `sleeper.errors`.\n",
        "| error | meaning |\n|---|---|\n" + "".join(map(_error_row, _errors())),
    ]
    return "\n".join(sections)


def _function(function: Any, name: str, heading: str) -> str:
    return f"{heading} {name}\n\n```python\n{_signature(function)}\n```\n\n{_doc(function)}\n"


def _class(kind: type) -> str:
    parts = [f"### {kind.__name__}\n\n{_doc(kind)}\n"]
    for name, member in _methods(kind):
        parts.append(_function(member, f"{kind.__name__}.{name}", "####"))
    return "\n".join(parts)


def _result(kind: type) -> str:
    rows = "".join(
        f"| `{name}` | `{_source_of(_plain(each.annotation))}` |\n".replace(" | None", " \\| None")
        for name, each in _fields(kind)
    )
    return f"### {kind.__name__}\n\n{_doc(kind)}\n\n| field | type |\n|---|---|\n{rows}"


def _plain(annotation: ast.expr | None) -> ast.expr | None:
    """Returns the type of an annotation, without marks that say how a field is stored."""
    match annotation:
        case ast.Subscript(ast.Name("Annotated"), ast.Tuple([kind, *_])):
            return kind
    return annotation


def _error_row(kind: type) -> str:
    return f"| `{kind.__name__}` | {' '.join(_doc(kind).split())} |\n"


def _errors() -> Iterator[type]:
    for item in vars(sleeper.errors).values():
        if inspect.isclass(item) and issubclass(item, sleeper.errors.SleeperError):
            yield item


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    """Yields the public methods and properties of a class and of its bases in the API.

    Those of a class are in the order of the source.
    """
    bases = [base for base in kind.__mro__ if base.__module__.startswith("sleeper.")]
    for name, member in (pair for base in bases or [kind] for pair in vars(base).items()):
        if not name.startswith("_") and (
            inspect.isfunction(member) or isinstance(member, property)
        ):
            yield name, member


def _results_of(members: list[Any]) -> list[type]:
    """Returns the dataclasses that the members return, and those in their fields."""
    results: list[type] = []
    hints = [(m.fget if isinstance(m, property) else m).__annotations__["return"] for m in members]
    for hint in hints:
        for item in (hint, *get_args(hint)):
            if dataclasses.is_dataclass(item) and item not in results:
                assert isinstance(item, type)
                results.append(item)
                hints += get_type_hints(item).values()
    return results


def _aliases(module: ModuleType) -> Iterator[str]:
    """Yields each documented type alias: an assignment that a string follows."""
    body = ast.parse(inspect.getsource(module)).body
    for pair in itertools.pairwise(body):
        match pair:
            case ast.Assign(targets=[ast.Name(name)]), ast.Expr(ast.Constant(str(text))):
                yield f"### {name}\n\n{inspect.cleandoc(text)}\n"


def _signature(member: Any) -> str:
    is_property = isinstance(member, property)
    source = textwrap.dedent(inspect.getsource(member.fget if is_property else member))
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.FunctionDef)
    result = _source_of(node.returns)
    if is_property:
        return f"{node.name}: {result}"
    options = getattr(member, "options", None)  # the dataclass whose fields the method takes
    if options is None:
        parameters = [p for p in _parameters(node.args) if p != "self"]
    else:
        parameters = [
            _parameter(ast.arg(name, _plain(field.annotation)), field.value)
            for name, field in _fields(options)
        ]
    line = f"{node.name}({', '.join(parameters)}) -> {result}"
    if len(line) <= _WIDTH:
        return line
    lines = "".join(f"    {parameter},\n" for parameter in parameters)
    return f"{node.name}(\n{lines}) -> {result}"


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    positional = arguments.args
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    yield from map(_parameter, positional, defaults)
    if arguments.kwonlyargs:
        yield "*"
    yield from map(_parameter, arguments.kwonlyargs, arguments.kw_defaults)


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg
    if argument.annotation is not None:
        text += f": {_source_of(argument.annotation)}"
    return text if default is None else f"{text} = {_default(default)}"


def _default(value: ast.expr) -> str:
    is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
    return json.dumps(ast.literal_eval(value)) if is_text else ast.unparse(value)


def _fields(kind: type) -> Iterator[tuple[str, ast.AnnAssign]]:
    """Yields the declarations of a dataclass's fields, those of its bases too, by name."""
    declared: dict[str, ast.AnnAssign] = {}
    for each in reversed([each for each in kind.__mro__ if dataclasses.is_dataclass(each)]):
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(node, ast.ClassDef)
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                declared[item.target.id] = item
    yield from declared.items()


def _source_of(annotation: ast.expr | None) -> str:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value  # a forward reference
    return "None" if annotation is None else ast.unparse(annotation)


def _doc(member: Any) -> str:
    text = inspect.getdoc(member)
    assert text, f"{member} has no docstring"
    return text


if __name__ == "__main__":
    sys.stdout.write(reference_page())
