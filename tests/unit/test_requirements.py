"""Pinned versions satisfy pyproject.toml. `make requirements` writes them."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME = PROJECT["project"]["dependencies"]
GROUPS = PROJECT["dependency-groups"]
DEPLOY, LAMBDAS = GROUPS["deploy"], GROUPS["lambdas"]
OF_DEVELOPMENT = [requirement for requirement in GROUPS["dev"] if isinstance(requirement, str)]
FILES = {
    "requirements.txt": RUNTIME + DEPLOY,
    "requirements-dev.txt": RUNTIME + DEPLOY + LAMBDAS + OF_DEVELOPMENT,
    "lambdas/requirements.txt": LAMBDAS,
    "containers/requirements.txt": RUNTIME + LAMBDAS,
    "containers/bulk_import/requirements.txt": RUNTIME + LAMBDAS + ["pandas>=2.2,<3"],
    "requirements-servers.txt": GROUPS["servers"],
}


def _pins(name: str) -> list[Requirement]:
    lines = (ROOT / name).read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


@pytest.mark.generated
@pytest.mark.parametrize("name", FILES)
def test_every_dependency_is_pinned_to_a_version_that_it_allows(name: str) -> None:
    pins = {
        canonicalize_name(p.name): str(p.specifier).removeprefix("==")
        for p in _pins(name)
        if p.marker is None
    }
    for requirement in map(Requirement, FILES[name]):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), (
            requirement
        )


# The emulator's environment is its own.
@pytest.mark.generated
@pytest.mark.parametrize("name", sorted(FILES.keys() - {"requirements-servers.txt"}))
def test_development_pins_repeat_all_others(name: str) -> None:
    assert set(map(str, _pins(name))) <= set(map(str, _pins("requirements-dev.txt")))


@pytest.mark.parametrize("library", ["pyarrow", "datafusion", "aws-cdk-lib"])
def test_the_zip_of_functions_has_no_library_that_is_not_for_it(library: str) -> None:
    assert library not in {pin.name for pin in _pins("lambdas/requirements.txt")}


@pytest.mark.parametrize("name", FILES)
def test_pins_are_exact(name: str) -> None:
    assert [p for p in _pins(name) if not re.fullmatch(r"==[^*,]+", str(p.specifier))] == []


@pytest.mark.parametrize("name", FILES)
def test_pins_name_no_index_and_no_path(name: str) -> None:
    assert re.findall(r"https?:|--|file:|@|/", (ROOT / name).read_text()) == []
