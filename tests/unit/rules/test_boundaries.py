"""General code names no system.

A system is a folder of the package, with its functions and its stacks. All other modules reach it
through what its `system.py` declares. The lists below may only become shorter.
"""

import re
from pathlib import Path

import pytest

from sleeper.systems import systems

ROOT = Path(__file__).parents[3]
_NAMES = {
    "stash": r"stash",
    "export_queue": r"(?<!bulk\.)export[ ._-]?queue",
    "adapters": r"adapter",
    "adjunct": r"adjunct",
}
_OWN_FUNCTIONS = {
    "stash": ("advance_stashes",),
    "export_queue": ("drain_exports", "follow_exports"),
    "adapters": ("start_adapters",),
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
    assert found == _GENERAL[name]


def test_every_system_with_a_folder_of_its_own_is_checked() -> None:
    others = {"workflows", "athena", "bulk_export", "bulk_import"}
    assert {each.name for each in systems()} == {*_NAMES, *others}
