"""Finds unused code: `python tools/dead_code.py`.

Vulture reads all Python files of the repository, including tests. A name that neither the product
nor a test uses is dead. `tool.dead-code` in pyproject.toml lists names that only a framework
calls, as `<file>: <name>`. An obsolete entry is an error too. Vulture ignores variables whose names
begin with an underscore, so those of modules and classes are checked here.
"""

import ast
import re
import sys
import tomllib
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
    targets: list[ast.expr] = []
    for statement in body:
        if isinstance(statement, ast.Assign):
            targets += statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets.append(statement.target)
    names = [each.id for each in targets if isinstance(each, ast.Name)]
    return [name for name in names if name[0] == "_" and name.strip("_") and name[:2] != "__"]


if __name__ == "__main__":
    main()
