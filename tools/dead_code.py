"""Finds unused code: `python tools/dead_code.py`.

Vulture reads all Python files of the repository, including tests. A name that neither the product
nor a test uses is dead. `tool.dead-code` in pyproject.toml lists names that only a framework
calls, as `<file>: <name>`. An obsolete entry is an error too. Vulture ignores variables whose names
begin with an underscore, so those of modules and classes are checked here. So are names that a
module or class defines twice, of which the first definition is dead.
"""

import ast
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path

from vulture import Vulture  # type: ignore[import-untyped]

ROOT = Path(__file__).parent.parent
LEAST_CONFIDENCE_PERCENT = 60
_DECLARATIONS = ("system.py", "workflows.py")
BUILT = ("build", "dist", "cdk.out", "node_modules")


def main() -> None:
    """Prints the faults, and exits with 1 if there are any."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dead-code"]
    listing = set(settings["used-elsewhere"])
    files = _sources()
    unused = {
        entry
        for entry in (
            _unused(files, settings["ignore-decorators"], settings["ignore-names"])
            | unused_private_variables(files)
        )
        if entry.partition(":")[0] not in settings["declarations"]
    }
    complaints = [f"{entry} is used nowhere" for entry in sorted(unused - listing)]
    complaints += [f"{entry} is defined twice" for entry in sorted(repeated_definitions(files))]
    complaints += [
        f"{entry} is used or does not exist: remove it from tool.dead-code in pyproject.toml"
        for entry in sorted(listing - unused)
    ]
    if complaints:
        sys.exit("\n".join(complaints))


def _sources() -> list[Path]:
    folders = [p for p in ROOT.iterdir() if p.is_dir() and p.name[0] != "." and p.name not in BUILT]
    return sorted([*ROOT.glob("*.py"), *(path for each in folders for path in each.rglob("*.py"))])


def _unused(files: list[Path], ignored_decorators: list[str], ignored_names: list[str]) -> set[str]:
    names = [*ignored_names, *referenced_names(files)]
    vulture = Vulture(ignore_decorators=ignored_decorators, ignore_names=names)
    vulture.scavenge([str(path) for path in files])
    result = vulture.get_unused_code(min_confidence=LEAST_CONFIDENCE_PERCENT)
    return {f"{item.filename.relative_to(ROOT)}: {item.name}" for item in result}


def referenced_names(files: list[Path]) -> set[str]:
    """Returns the names that systems refer to as `"module:name"`."""
    texts = (path.read_text(encoding="utf-8") for path in files if path.name in _DECLARATIONS)
    return {name for text in texts for name in re.findall(r'"[a-z_.]+:(\w+)"', text)}


def unused_private_variables(files: list[Path]) -> set[str]:
    """Returns variables `_name` of modules and classes that their file does not read.

    An import or an attribute reads a name in all files, and a string, which may be an annotation,
    in its own.
    """
    assigned: set[tuple[Path, str]] = set()
    read: set[tuple[Path, str]] = set()
    shared: set[str] = set()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Module(body=body) | ast.ClassDef(body=body):
                    assigned.update((path, name) for name in _private_targets(body))
                case ast.Name(id=name, ctx=ast.Load()):
                    read.add((path, name))
                case ast.Constant(value=str(text)):
                    read.update((path, name) for name in re.findall(r"\w+", text))
                case ast.Attribute(attr=name, ctx=ast.Load()):
                    shared.add(name)
                case ast.ImportFrom(names=names):
                    shared.update(each.name for each in names)
    return {
        f"{path.relative_to(ROOT)}: {name}" for path, name in assigned - read if name not in shared
    }


def _private_targets(body: list[ast.stmt]) -> list[str]:
    names = [name for statement in body for name in _targets(statement)]
    return [name for name in names if name[0] == "_" and name.strip("_") and name[:2] != "__"]


def _targets(statement: ast.stmt) -> list[str]:
    """Returns the variables that a statement assigns."""
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    names = [name for each in targets for name in getattr(each, "elts", [each])]
    return [each.id for each in names if isinstance(each, ast.Name)]


def repeated_definitions(files: list[Path]) -> set[str]:
    """Returns names that a module or a class defines again, such as two constants of one name."""
    repeated = set()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef):
                names = Counter(name for each in node.body for name in _definitions(each))
                repeated.update(
                    f"{path.relative_to(ROOT)}: {name}"
                    for name, count in names.items()
                    if count > 1 and name != "_"
                )
    return repeated


def _definitions(statement: ast.stmt) -> list[str]:
    """Returns the names of an import, a definition or an assignment.

    A decorator, such as `overload` or a setter, may need several definitions of a function.
    """
    match statement:
        case ast.FunctionDef(decorator_list=[]) | ast.AsyncFunctionDef(decorator_list=[]):
            return [statement.name]
        case ast.ClassDef(name=name):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [each.asname or each.name for each in names]
    return _targets(statement)


if __name__ == "__main__":
    main()
