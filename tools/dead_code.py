"""Finds unused code: `python tools/dead_code.py`.

Vulture reads all Python files of the repository, including tests. A name that neither the product
nor a test uses is dead. `tool.dead-code` in pyproject.toml lists names that only a framework
calls, as `<file>: <name>`. An obsolete entry is an error too.
"""

import sys
import tomllib
from pathlib import Path

from vulture import Vulture  # type: ignore[import-untyped]

ROOT = Path(__file__).parent.parent
LEAST_CONFIDENCE_PERCENT = 60
BUILT = ("build", "dist", "cdk.out", "node_modules")


def main() -> None:
    """Prints the faults, and exits with 1 if there are any."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dead-code"]
    listing = set(settings["used-elsewhere"])
    unused = {
        entry
        for entry in _unused(settings["ignore-decorators"], settings["ignore-names"])
        if entry.partition(":")[0] not in settings["declarations"]
    }
    complaints = [f"{entry} is used nowhere" for entry in sorted(unused - listing)]
    complaints += [
        f"{entry} is used or does not exist: remove it from tool.dead-code in pyproject.toml"
        for entry in sorted(listing - unused)
    ]
    if complaints:
        sys.exit("\n".join(complaints))


def _unused(ignored_decorators: list[str], ignored_names: list[str]) -> set[str]:
    vulture = Vulture(ignore_decorators=ignored_decorators, ignore_names=ignored_names)
    folders = [p for p in ROOT.iterdir() if p.is_dir() and p.name[0] != "." and p.name not in BUILT]
    vulture.scavenge(sorted(str(p) for p in (*folders, *ROOT.glob("*.py"))))
    result = vulture.get_unused_code(min_confidence=LEAST_CONFIDENCE_PERCENT)
    return {f"{item.filename.relative_to(ROOT)}: {item.name}" for item in result}


if __name__ == "__main__":
    main()
