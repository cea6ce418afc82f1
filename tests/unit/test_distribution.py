"""The name on the package index: one name in the build, in messages and in the documentation."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from sleeper import DISTRIBUTION

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "containers", "core", "demo", "docs", "examples", "lambdas", "stacks")
SUFFIXES = {".html", ".json", ".md", ".py", ".sh", ".toml", ".txt", ".yml", ""}
# `sleeper` on the package index is another project.
FOREIGN = re.compile(r"pip install (?:-\S+ )*['\"]?sleeper(?![\w-])|['\"` ]sleeper\[[a-z,]+\]")


def _texts() -> Iterator[Path]:
    yield from (path for path in ROOT.iterdir() if path.is_file() and path.suffix in SUFFIXES)
    for folder in (*FOLDERS, ".github", "tools"):
        yield from (
            path
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and path.suffix in SUFFIXES and "__pycache__" not in path.parts
        )


def test_the_constant_is_the_name_of_the_build() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION


def test_no_text_installs_the_other_project() -> None:
    match = {
        str(path.relative_to(ROOT)): FOREIGN.findall(path.read_text(encoding="utf-8"))
        for path in _texts()
    }
    assert {path: hits for path, hits in match.items() if hits} == {}


def test_the_check_finds_the_other_project() -> None:
    for text in ("pip install sleeper", "pip install -U 'sleeper[serve]'", "`sleeper[spark]`"):
        assert FOREIGN.search(text), text
    for text in ("pip install 'sleeper-store[serve]'", "pip install sleeper_x", "sleeper[name]"):
        assert not FOREIGN.search(text), text


def test_addresses_of_the_project_are_declared_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = tuple(project.get("urls", {}).values())
    address = re.compile(r"https?://[\w.-]+/[\w-]*sleeper[\w-]*/[\w./-]+|git clone https?://\S+")
    undeclared = {
        f"{path.relative_to(ROOT)}: {found}"
        for path in _texts()
        for found in address.findall(path.read_text(encoding="utf-8"))
        if "gchq/" not in found and not found.startswith(declared or ("-",))
    }
    assert undeclared == set()
