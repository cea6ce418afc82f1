"""Checks, builds and verifies a release: `python tools/release.py VERSION`.

The version must be `sleeper.__version__` and have a dated section in CHANGELOG.md; the working
tree must be clean and the tag `v<VERSION>` unused. The sdist and the wheel are built into `dist/`,
the wheel from the sdist. The wheel must contain exactly the packages of `core`, and its
`sleeper --version` must print the version in a fresh virtual environment. `dist/` also gets bills
of materials (CycloneDX JSON) of the packages, functions and images. Nothing is uploaded.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

from sleeper import DISTRIBUTION, __version__

ROOT = Path(__file__).parent.parent
CORE = ROOT / "core"
# A build leaves a folder of metadata beside them.
PACKAGES = [each.parent for each in sorted(CORE.glob("*/__init__.py"))]
PINS = (
    ROOT / "requirements.txt",
    *(ROOT / folder / "requirements.txt" for folder in ("lambdas", "containers")),
    ROOT / "containers" / "bulk_import" / "requirements.txt",
)
TEMPLATES = ROOT / "tests" / "infra" / "releases"
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_HEADING = re.compile(r"^## \[(?P<version>[^]]+)\](?: - (?P<date>\S+))?$", re.MULTILINE)


def main() -> None:
    """Makes the release, or exits with 1 and the reasons against it."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("version", metavar="VERSION")
    version = arguments.parse_args().version
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    problems = [*version_problems(version, __version__, changelog), *_repository_problems(version)]
    if problems:
        sys.exit("\n".join(problems))
    wheel = _build(version)
    problems = content_problems(wheel)
    if problems:
        sys.exit("\n".join(problems))
    _verify(wheel, version)
    materials = [write_materials(each, wheel.parent).name for each in PINS]
    print(f"{wheel.name}, its sdist and {', '.join(materials)} are in dist/; the wheel is verified")
    print(f"now tag v{version} and upload")


def version_problems(version: str, declared_version: str, changelog: str) -> list[str]:
    """Returns the reasons why the sources are not those of this version."""
    problems = []
    if not _VERSION.fullmatch(version):
        problems.append(f"version {version!r} is not MAJOR.MINOR.PATCH")
    if declared_version != version:
        problems.append(f"sleeper.__version__ is {declared_version!r} (expected {version!r})")
    dates = {match["version"]: match["date"] for match in _HEADING.finditer(changelog)}
    if version not in dates:
        problems.append(f"CHANGELOG.md has no section for {version}")
    elif not re.fullmatch(r"\d{4}-\d{2}-\d{2}", dates[version] or ""):
        problems.append(f"the section for {version} in CHANGELOG.md has no date (YYYY-MM-DD)")
    return problems


def content_problems(wheel: Path) -> list[str]:
    """Returns the differences between the wheel and the folder of the packages."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    sources = {
        path.relative_to(CORE).as_posix()
        for package in PACKAGES
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    return [
        *(f"{name} is not in the wheel" for name in sorted(sources - packed)),
        *(f"{name} is in the wheel only" for name in sorted(packed - sources)),
    ]


def _repository_problems(version: str) -> list[str]:
    problems = []
    if _run("git", "status", "--porcelain"):
        problems.append("the working tree has changes that are not committed")
    if _run("git", "tag", "--list", f"v{version}"):
        problems.append(f"tag v{version} exists")
    if not (TEMPLATES / f"{version}.json").exists():
        problems.append(f"the templates of {version} are not recorded (see docs/releasing.md)")
    return problems


def _build(version: str) -> Path:
    # Without isolation the build uses the pinned setuptools and no package index.
    dist = ROOT / "dist"
    for old in dist.glob("*"):
        old.unlink()
    _run(sys.executable, "-m", "uv", "build", "--quiet", "--no-build-isolation", "--out-dir", dist)
    (wheel,) = dist.glob(f"{DISTRIBUTION.replace('-', '_')}-{version}-*.whl")
    return wheel


def _verify(wheel: Path, version: str) -> None:
    with tempfile.TemporaryDirectory(prefix="sleeper-release-") as folder:
        venv.create(folder, with_pip=True)
        programs = Path(folder) / "bin"
        _run(programs / "python", "-m", "pip", "install", "--quiet", wheel, cwd=folder)
        output = _run(programs / "sleeper", "--version", cwd=folder)
    if output != f"sleeper {version}":
        sys.exit(f"the installed command prints {output!r} (expected 'sleeper {version}')")


def write_materials(pins: Path, folder: Path) -> Path:
    """Writes the bill of materials of a requirements file: each package with version and hashes."""
    name = "-".join(pins.parent.relative_to(ROOT).parts) or "sleeper"
    path = folder / f"{name}.cdx.json"
    command = [sys.executable, "-m", "cyclonedx_py", "requirements", str(pins)]
    options = ["--pyproject", ROOT / "pyproject.toml", "--output-reproducible"]
    _run(*command, *options, "--output-file", path)
    return path


def _run(*command: str | Path, cwd: str | Path = ROOT) -> str:
    process = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if process.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {process.stderr.strip()}")
    return process.stdout.strip()


if __name__ == "__main__":
    main()
