"""The wheels that images and functions install: `python -m tools.wheels [--write]`.

A wheel is a file of a package for a Python and a processor. Hashes in requirements do not tell for
which, so `--write` asks uv's index, or its cache, and records in `containers/wheels.txt` of each
pin the wheel that fits. It fails if there is none. Without it, the sizes of each are printed.
"""

import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).parent.parent
FILE = ROOT / "containers" / "wheels.txt"
_HEAD = "# `make requirements` writes this file: SHA-256, bytes and name of each wheel."
# The oldest C library of the base images is 2.34, that of Amazon Linux 2023.
_GLIBC_MINOR = 28
_GLIBC_MINOR_OLDEST = 17


@dataclass(frozen=True, slots=True)
class Target:
    """What installs the pins of a file, and its Python."""

    name: str
    requirements: str
    python: str


TARGETS = (
    Target("functions without an image", "lambdas/requirements.txt", "3.13"),
    Target("worker, function", "containers/requirements.txt", "3.13"),
    Target("bulk_import", "containers/bulk_import/requirements.txt", "3.11"),
)
MACHINES = {"ARM64": "aarch64", "X86_64": "x86_64"}


@dataclass(frozen=True, slots=True, order=True)
class Wheel:
    name: str
    bytes: int
    sha256: str


def read_wheels() -> list[Wheel]:
    """Returns the recorded wheels."""
    lines = (line.split() for line in FILE.read_text(encoding="utf-8").splitlines()[1:])
    return [Wheel(name, int(size), digest) for digest, size, name in lines]


def _resolve(target: Target, machine: str) -> Iterator[Wheel]:
    """Yields the wheels of a target. uv fails if a pin has none."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pylock.toml"
        command = [sys.executable, "-P", "-m", "uv", "pip", "compile", "--quiet", "--no-config"]
        command += ["--no-deps", "--only-binary", ":all:", "--python-version", target.python]
        command += [
            "--python-platform",
            f"{machine}-manylinux_2_{_GLIBC_MINOR}",
            "--output-file",
            str(file),
        ]
        subprocess.run([*command, str(ROOT / target.requirements)], check=True)
        packages = tomllib.loads(file.read_text(encoding="utf-8"))["packages"]
    preferred = list_tags(target.python, machine)
    for package in packages:
        wheels = {Path(urlparse(each["url"]).path).name: each for each in package["wheels"]}
        name = min(wheels, key=lambda each: _rank(each, preferred))
        yield Wheel(name, wheels[name]["size"], wheels[name]["hashes"]["sha256"])


def list_tags(python: str, machine: str) -> list[Tag]:
    """Returns the tags of wheels that a Python on Linux installs, the preferred ones first."""
    major, minor = map(int, python.split("."))
    platforms = [
        f"manylinux_2_{glibc}_{machine}"
        for glibc in range(_GLIBC_MINOR, _GLIBC_MINOR_OLDEST - 1, -1)
    ]
    return [
        *cpython_tags((major, minor), platforms=platforms),
        *compatible_tags((major, minor), f"cp{major}{minor}", platforms),
    ]


def _rank(name: str, preferred: list[Tag]) -> int:
    tags = parse_wheel_filename(name)[3]
    return min(preferred.index(tag) for tag in tags if tag in preferred)


def main() -> None:
    """Prints the sizes of the wheels of each target, and with `--write` records the wheels."""
    resolved = {
        (target, processor): list(_resolve(target, machine))
        for target in TARGETS
        for processor, machine in MACHINES.items()
    }
    if sys.argv[1:] == ["--write"]:
        wheels = sorted({wheel for each in resolved.values() for wheel in each})
        lines = [f"{each.sha256} {each.bytes} {each.name}" for each in wheels]
        FILE.write_text("\n".join([_HEAD, *lines, ""]), encoding="utf-8")
    for (target, processor), wheels in resolved.items():
        size = sum(each.bytes for each in wheels) / 1e6
        print(f"{target.name}, {processor}: {len(wheels)} wheels, {size:,.0f} MB")


if __name__ == "__main__":
    main()
