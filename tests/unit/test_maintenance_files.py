"""The files for maintainers against the repository: versions, links, workflow and hooks."""

import json
import re
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from sleeper import DISTRIBUTION, __version__
from tools import dead_code
from tools.release import content_problems, version_problems, write_materials

ROOT = Path(__file__).parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/design/*.md")]
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]*))?\)")


def test_the_changelog_has_the_version() -> None:
    assert version_problems(__version__, __version__, CHANGELOG) == []


@pytest.mark.parametrize(
    ("version", "declared", "changelog", "problem"),
    [
        ("1.2", "1.2", "## [1.2] - 2026-01-01", "version '1.2' is not MAJOR.MINOR.PATCH"),
        ("1.2.3", "1.2.2", "## [1.2.3] - 2026-01-01", "sleeper.__version__ is '1.2.2'"),
        ("1.2.3", "1.2.3", "## [Unreleased]", "CHANGELOG.md has no section for 1.2.3"),
        ("1.2.3", "1.2.3", "## [1.2.3]", "has no date"),
    ],
)
def test_a_release_is_refused_with_the_reason(
    version: str, declared: str, changelog: str, problem: str
) -> None:
    (result,) = version_problems(version, declared, changelog)
    assert problem in result


def test_a_wheel_without_the_packages_files_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "some.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tests/test_x.py", "")
        archive.writestr("sleeper_store-1.dist-info/METADATA", "")
    problems = content_problems(wheel)
    assert "sleeper/py.typed is not in the wheel" in problems
    assert "pyspark_sleeper/__init__.py is not in the wheel" in problems
    assert "tests/test_x.py is in the wheel only" in problems


@pytest.mark.slow
def test_a_release_lists_its_packages_with_hashes(tmp_path: Path) -> None:
    pins = ROOT / "lambdas" / "requirements.txt"
    materials = json.loads(write_materials(pins, tmp_path).read_text())
    assert materials["metadata"]["component"]["name"] == DISTRIBUTION
    versions = {each["name"]: each["version"] for each in materials["components"]}
    assert versions
    assert all(f"{name}=={pin}" in pins.read_text() for name, pin in versions.items())
    assert all(each["externalReferences"] for each in materials["components"])


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    broken = []
    for target, anchor in LINK.findall(text):
        path = (page.parent / target).resolve() if target else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in _anchors(path)):
            broken.append(f"{target}#{anchor}" if anchor else target)
    assert broken == []


def _anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_hosted_ci_runs_the_repositorys_own_checks() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    job = workflow["jobs"]["test"]
    assert job["steps"][-1]["run"] == ".ci/run"
    actions = [step["uses"] for step in job["steps"] if "uses" in step]
    assert [each for each in actions if not re.search(r"@[0-9a-f]{40}$", each)] == []
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    supported = {c.rpartition(" ")[2] for c in classifiers if "Python :: 3." in c}
    assert set(job["strategy"]["matrix"]["python"]) <= supported


def test_files_for_forges_and_hooks_can_be_read() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert all(hook["entry"].startswith(".venv/bin/") for hook in hooks)
    for form in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        assert yaml.safe_load(form.read_text()), form


def test_the_changelog_has_each_entry_once() -> None:
    entries = [" ".join(each.split()) for each in re.findall(r"^- .*(?:\n  .*)*", CHANGELOG, re.M)]
    assert len(entries) > 50
    assert [each for each in entries if entries.count(each) > 1] == []


def test_the_list_of_design_notes_is_complete() -> None:
    folder = ROOT / "docs" / "design"
    listed = re.findall(r"\]\((\d{4}-[^)]*\.md)\)", (folder / "README.md").read_text())
    assert listed == sorted(path.name for path in folder.glob("0*.md"))


def test_the_dead_code_check_sees_private_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_code, "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text("_LIMIT = 1\n_JOINS = ()\n_Kind = int\n\ndef f(kind: '_Kind'): return _LIMIT\n")
    assert dead_code.unused_private_variables([path]) == {"module.py: _JOINS"}


def test_the_dead_code_check_sees_names_that_are_defined_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_code, "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(
        "from a import b, f\nB, C = 1, 2\nif B:\n    C = 3\nB: int = 4\ndef f(): C = 5\n"
        "@overload\ndef g(): ...\ndef g(): ...\nclass D:\n    E = 1\n    def E(self): ...\n"
    )
    assert dead_code.repeated_definitions([path]) == {
        "module.py: B",
        "module.py: E",
        "module.py: f",
    }
