"""What a control-plane module really loads, in a process of its own.

import-linter reads imports from the source and does not see what a parent package's
`__init__` pulls in; this looks at `sys.modules`. Both take their lists from the contracts
`control_plane` and `control_plane_on_aws` in pyproject.toml.
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
    """The modules on disk that `package.**`, `package.*.module` or a module's name stands for."""
    pattern = expression.removesuffix(".**").replace(".", "/")
    names = []
    for root in (CORE, ROOT):
        files = [*root.glob(f"{pattern}.py"), *root.glob(f"{pattern}/**/*.py")]
        names += [".".join(file.relative_to(root).with_suffix("").parts) for file in files]
    return sorted(name.removesuffix(".__init__") for name in names)


CONTRACT = _contract("control_plane")
PACKAGES = {e: m for e in CONTRACT["source_modules"] if (m := _modules(e))}
FUNCTIONS = _contract("control_plane_on_aws")
# These read data files.
IMAGES = {
    "lambdas.athena_metadata.handler",
    "lambdas.athena_records.handler",
    "lambdas.run_leaf_query.handler",
    "lambdas.serve_http.handler",
    "lambdas.split_partition.handler",
}


def _loaded_after_importing(modules: list[str]) -> set[str]:
    program = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": f"{CORE}:{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("package", PACKAGES)
def test_control_plane_package_loads_no_data_library(package: str) -> None:
    loaded = _loaded_after_importing(PACKAGES[package])
    assert loaded & set(CONTRACT["forbidden_modules"]) == set()


def test_control_plane_functions_load_no_data_library() -> None:
    modules = {m for expression in FUNCTIONS["source_modules"] for m in _modules(expression)}
    assert modules > IMAGES
    loaded = _loaded_after_importing(sorted(modules - IMAGES))
    assert loaded & set(FUNCTIONS["forbidden_modules"]) == set()


def test_control_plane_list_finds_the_packages_that_are_there() -> None:
    assert {"sleeper.schema.**", "sleeper.partitions.**", "sleeper.errors"} <= PACKAGES.keys()
    assert "sleeper.schema.model" in PACKAGES["sleeper.schema.**"]


def test_a_data_library_that_is_loaded_would_be_seen() -> None:
    assert "pyarrow" in _loaded_after_importing(["sleeper.schema.model", "pyarrow"])


def test_sleeper_itself_loads_nothing_of_its_own() -> None:
    ours = {m for m in _loaded_after_importing(["sleeper"]) if m.startswith("sleeper.")}
    assert ours == set()
