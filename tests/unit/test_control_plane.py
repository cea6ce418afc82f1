"""The modules that a control-plane module loads, measured in a new process.

import-linter reads imports from the source and does not see what a parent package's
`__init__` pulls in; this looks at `sys.modules`. Both take their list from the contract
`control_plane` in pyproject.toml.
"""

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


def _modules(expression: str) -> list[str]:
    """Returns the modules on disk that match `package.**`, `package.*.module` or a name."""
    pattern = expression.removesuffix(".**").replace(".", "/")
    names = []
    for root in (CORE, ROOT):
        files = [*root.glob(f"{pattern}.py"), *root.glob(f"{pattern}/**/*.py")]
        names += [".".join(file.relative_to(root).with_suffix("").parts) for file in files]
    return sorted(name.removesuffix(".__init__") for name in names)


CONTRACT = _contract("control_plane")
FORBIDDEN = set(CONTRACT["forbidden_modules"])
# Functions that read data files, from images.
IMAGES = {
    "lambdas.advance_stashes.handler",
    "lambdas.athena_metadata.handler",
    "lambdas.athena_records.handler",
    "lambdas.drain_exports.handler",
    "lambdas.follow_exports.handler",
    "lambdas.run_leaf_query.handler",
    "lambdas.serve_http.handler",
    "lambdas.split_partition.handler",
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
    modules = set(_modules(expression)) - IMAGES
    assert modules
    assert _loaded_after_importing(sorted(modules)) & FORBIDDEN == set()


def test_the_images_are_functions() -> None:
    assert set(_modules("lambdas.**")) > IMAGES


def test_a_data_library_that_is_loaded_would_be_seen() -> None:
    assert "pyarrow" in _loaded_after_importing(["sleeper.schema.model", "pyarrow"])


def test_sleeper_itself_loads_nothing_of_its_own() -> None:
    ours = {m for m in _loaded_after_importing(["sleeper"]) if m.startswith("sleeper.")}
    assert ours == set()
