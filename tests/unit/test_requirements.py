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
    "requirements-engines.txt": GROUPS["engines"],
}
_APART = {"requirements-servers.txt", "requirements-engines.txt"}


def test_extras_bring_any_spark_or_none() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    (spark,) = (Requirement(each) for each in extras["spark"] if each.startswith("pyspark"))
    versions = {"3.4.4": False, "3.5.0": True, "4.0.5": True, "4.3.0": True, "4.4.0": False}
    assert {each: spark.specifier.contains(each) for each in versions} == versions
    others = [each for each in extras["spark"] if not each.startswith("pyspark")]
    assert extras["spark-provided"] == others


def _pins(name: str) -> list[Requirement]:
    return [requirement for requirement, _ in _hashed_pins(name)]


def _hashed_pins(name: str) -> list[tuple[Requirement, list[str]]]:
    text = (ROOT / name).read_text().replace("\\\n", "")
    lines = [line.split(" --hash=") for line in text.splitlines() if line and line[0] != "#"]
    return [(Requirement(pin.strip()), [each.strip() for each in hashes]) for pin, *hashes in lines]


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


# The environments of the emulator and of other engines are their own.
@pytest.mark.generated
@pytest.mark.parametrize("name", sorted(FILES.keys() - _APART))
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
    assert re.findall(r"https?:|--(?!hash=)|file:|@|/", (ROOT / name).read_text()) == []


@pytest.mark.parametrize("name", FILES)
def test_every_pin_has_hashes(name: str) -> None:
    for requirement, hashes in _hashed_pins(name):
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), requirement


def test_every_requirements_file_of_the_repository_is_checked() -> None:
    files = {
        path.relative_to(ROOT).as_posix()
        for pattern in (
            "requirements*.txt",
            "lambdas/**/requirements*.txt",
            "containers/**/requirements*.txt",
        )
        for path in ROOT.glob(pattern)
    }
    assert files == set(FILES)
