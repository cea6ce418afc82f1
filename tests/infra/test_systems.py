"""The boundary between the stacks of systems and everything else that is deployed."""

import re
from pathlib import Path

from sleeper.systems import systems
from tests.infra.synthesis import ROOT

# The functions and images of systems, which start with these words.
_OWN = re.compile(
    r"advance_stashes|athena_|drain_exports|follow_exports|start_adapters|start_bulk_import"
    r"|watch_bulk_imports|bulk_import/"
)


def _general_files() -> list[Path]:
    folders = ("stacks", "lambdas", "containers")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    return [
        ROOT / "app.py",
        *(
            file
            for file in files
            if not file.is_relative_to(ROOT / "stacks" / "systems")
            and not _OWN.match("/".join(file.relative_to(ROOT).parts[1:]))
        ),
    ]


def test_general_stacks_functions_and_tasks_name_no_system() -> None:
    names = [each.name.rstrip("s") for each in systems() if each.stacks]
    assert "stash" in names
    pattern = re.compile("|".join(name.replace("_", "[-_ ]?") for name in names), re.IGNORECASE)
    files = _general_files()
    assert len(files) > 50
    faults = [str(file.relative_to(ROOT)) for file in files if pattern.search(file.read_text())]
    assert faults == []
