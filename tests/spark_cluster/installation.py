"""An installation of the project's wheel, as users have it: a virtual environment of its own."""

import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from tests.spark.session import PRELOADED
from tests.spark_cluster.machines import ROOT

_SOURCES = ("pyproject.toml", "README.md", "LICENSE", "core")


@dataclass(frozen=True, slots=True)
class Installation:
    """A virtual environment with the libraries of this one."""

    folder: Path

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.folder / "bin" / "python")

    @property
    def command(self) -> str:
        """The `sleeper` command."""
        return str(self.folder / "bin" / "sleeper")


def make_environment(folder: Path) -> Installation:
    """Returns a new environment, in which the libraries can be imported, but not the project."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = _packages(folder)
    # Files of its kind in the folder that it names are not read, such as that of the repository.
    (packages / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return Installation(folder)


def install_wheel(folder: Path) -> Installation:
    """Builds the wheel from a copy of the sources, and returns an environment that has it."""
    sources = folder / "sources"
    sources.mkdir()
    for name in _SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, sources / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, sources)
    _uv(
        "build",
        "--wheel",
        "--no-build-isolation",
        "--python",
        sys.executable,
        "-o",
        folder,
        sources,
    )
    made = make_environment(folder / "installed")
    (wheel,) = folder.glob("*.whl")
    _uv("pip", "install", "--no-deps", "--no-index", "--python", made.python, wheel)
    # Spark's Python daemons load the libraries once.
    shutil.copy(PRELOADED / "sitecustomize.py", _packages(made.folder))
    return made


def _packages(folder: Path) -> Path:
    (packages,) = folder.glob("lib/python3.*/site-packages")
    return packages


def _uv(*arguments: object) -> None:
    program = str(Path(sysconfig.get_path("scripts"), "uv"))
    command = [program, *map(str, arguments), "--quiet", "--offline", "--no-config"]
    subprocess.run(command, check=True)
