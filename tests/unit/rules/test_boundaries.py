"""General code names no system.

A system is a folder of the package, with its functions and its stacks. All other modules reach it
through what its `system.py` declares. The lists below may only become shorter.
"""

import re
import tomllib
from pathlib import Path

import pytest

from sleeper.systems import systems

ROOT = Path(__file__).parents[3]
# Their names are words of gchq/sleeper, and of its messages.
_UNCHECKED = {"workflows", "athena", "bulk_export", "bulk_import"}
_NAMES = {
    **{each.name: each.name for each in systems() if each.name not in _UNCHECKED},
    "export_queue": r"(?<!bulk\.)export[ ._-]?queue",
    "adapters": r"adapter",
}
_OWN_FUNCTIONS = {
    "stash": ("advance_stashes",),
    "export_queue": ("drain_exports", "follow_exports"),
    "adapters": ("start_adapters",),
    "iceberg": ("publish_tables",),
}
# The registry, imports for type checkers, formats and names that users see.
_GENERAL = {
    "stash": {
        "core/sleeper/api/system_methods.py",
        "core/sleeper/processing/enrichment.py",
        "core/sleeper/spark/__init__.py",
        "core/sleeper/systems.py",
    },
    "export_queue": {
        "core/sleeper/__init__.py",
        "core/sleeper/api/system_methods.py",
        "core/sleeper/api/transaction.py",
        "core/sleeper/statestore/fold_tables.py",
        "core/sleeper/statestore/version_copy.py",
        "core/sleeper/systems.py",
        "core/sleeper/workers/run_status.py",
    },
    "iceberg": {"core/sleeper/api/system_methods.py", "core/sleeper/systems.py"},
    "adapters": {
        "core/sleeper/api/system_methods.py",
        "core/sleeper/backup/manifest.py",
        "core/sleeper/systems.py",
    },
    "adjunct": {
        "core/sleeper/api/system_methods.py",
        "core/sleeper/processing/enrichment.py",
        "core/sleeper/properties/table.py",
        "core/sleeper/spark/__init__.py",
        "core/sleeper/systems.py",
    },
}


def _modules() -> list[Path]:
    folders = ("core/sleeper", "lambdas", "containers", "stacks")
    return [ROOT / "app.py", *(path for each in folders for path in (ROOT / each).rglob("*.py"))]


def _is_of_a_system(path: str) -> bool:
    own = [f"lambdas/{name}/" for names in _OWN_FUNCTIONS.values() for name in names]
    folders = [f"core/sleeper/{name}/" for name in _NAMES]
    return path.startswith((*folders, *own, "stacks/systems/"))


@pytest.mark.parametrize("name", _NAMES)
def test_general_modules_name_no_system(name: str) -> None:
    pattern = re.compile(_NAMES[name], re.IGNORECASE)
    paths = {path.relative_to(ROOT).as_posix(): path.read_text() for path in _modules()}
    found = {
        path for path, text in paths.items() if not _is_of_a_system(path) and pattern.search(text)
    }
    assert found == _GENERAL.get(name, {"core/sleeper/systems.py"})


def test_every_package_has_a_layer_or_is_a_system_that_nothing_imports() -> None:
    package = ROOT / "core/sleeper"
    children = {each.stem for each in package.iterdir() if each.suffix == ".py" or each.is_dir()}
    others = {each for each in children - _layers() if not each.startswith("__")}
    assert others <= {each.name for each in systems()}
    for name in others:
        for path in set(_modules()) - set((package / name).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            assert not re.search(rf"^\s*(from|import) sleeper\.{name}\b", text, re.MULTILINE), path


def _layers() -> set[str]:
    """Returns the packages that the layers of `pyproject.toml` name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (
        each
        for each in project["tool"]["importlinter"]["contracts"]
        if each.get("containers") == ["sleeper"]
    )
    return {name for layer in contract["layers"] for name in re.findall(r"\w+", layer)}


def test_general_stacks_name_no_system() -> None:
    names = [each.name.rstrip("s").replace("_", "[ ._-]?") for each in systems() if each.stacks]
    assert {"stash", "athena"} <= set(names)
    pattern = re.compile("|".join(names), re.IGNORECASE)
    files = [ROOT / "app.py", *(ROOT / "stacks").rglob("*.py")]
    paths = {path.relative_to(ROOT).as_posix(): path.read_text() for path in files}
    general = {path: text for path, text in paths.items() if "/systems/" not in path}
    assert len(general) > 30
    assert [path for path, text in general.items() if pattern.search(text)] == []
