"""The modules that a control-plane module loads, measured in a new process.

import-linter reads imports from the source and does not see what a parent package's
`__init__` pulls in; this looks at `sys.modules`. Both take their list from the contract
`control_plane` in pyproject.toml.
"""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "core"


def _contract(name: str) -> dict[str, Any]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    return next(c for c in contracts if c.get("id") == name)


def _modules(expression: str) -> set[str]:
    """Returns the modules on disk that match a name with wildcards, `**` at its end only."""
    pattern = expression.removesuffix(".**").replace(".", "/")
    patterns = [f"{pattern}.py", f"{pattern}/__init__.py"]
    if expression.endswith(".**"):
        patterns = [f"{pattern}/**/*.py"]
    files = [(f, root) for root in (CORE, ROOT) for each in patterns for f in root.glob(each)]
    names = (".".join(file.relative_to(root).with_suffix("").parts) for file, root in files)
    return {name.removesuffix(".__init__") for name in names}


CONTRACT = _contract("control_plane")
FORBIDDEN = set(CONTRACT["forbidden_modules"])
# Functions that read data files, from images, and packages that whole installations have.
EXEMPT = {
    each.removesuffix(" -> **") for each in CONTRACT["ignore_imports"] if each.endswith(" -> **")
}
EXPRESSIONS = [e for e in CONTRACT["source_modules"] if not e.startswith("stacks")]


def _loaded_after_importing(modules: list[str]) -> set[str]:
    program = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": f"{CORE}:{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(process.stdout.split())


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_control_plane_package_loads_no_data_library(expression: str) -> None:
    modules = _modules(expression) - EXEMPT
    assert modules
    assert _loaded_after_importing(sorted(modules)) & FORBIDDEN == set()


def test_the_exempt_modules_exist() -> None:
    assert {each for each in EXEMPT if each.startswith("lambdas.")} < _modules("lambdas.**")
    assert {each for each in EXEMPT if each.startswith("sleeper.")} < _modules("sleeper.*")


@pytest.mark.parametrize(
    "module", ["sleeper.clock", "sleeper.compaction.plan", "sleeper.stash", "sleeper.stash.system"]
)
def test_a_module_falls_under_the_contract_by_its_name(module: str) -> None:
    assert any(module in _modules(expression) for expression in EXPRESSIONS)


def test_the_app_is_made_of_stacks() -> None:
    # import-linter reads packages only, and the app is a module.
    tree = ast.parse((ROOT / "app.py").read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {name for name in imported if name.startswith("sleeper")}
    assert ours <= {module for e in CONTRACT["source_modules"] for module in _modules(e)}


def test_a_data_library_that_is_loaded_would_be_seen() -> None:
    assert "pyarrow" in _loaded_after_importing(["sleeper.schema.model", "pyarrow"])


def test_sleeper_itself_loads_nothing_of_its_own() -> None:
    ours = {m for m in _loaded_after_importing(["sleeper"]) if m.startswith("sleeper.")}
    assert ours == set()
