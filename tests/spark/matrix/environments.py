"""Environments of other versions of PySpark: the package's wheel and what it needs, pinned.

A version is an archive of about 430 MB, which is installed and not kept.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.spark.matrix.record import Run
from tests.spark.session import preloading

_ROOT = Path(__file__).parents[3]
_UV = Path(sys.prefix) / "bin" / "uv"
_READY = ".ready"


def build_wheel(folder: Path) -> Path:
    """Builds the wheel of this working tree in the folder."""
    for old in folder.glob("*.whl"):
        old.unlink()
    build = ("build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable)
    _uv(folder, *build, "--out-dir", str(folder), str(_ROOT))
    (wheel,) = folder.glob("*.whl")
    return wheel


def prepare(folder: Path, version: str, python: str, wheel: Path) -> Path:
    """Returns the Python of an environment of this version with the wheel.

    PySpark and the dependencies are installed once, the wheel each time.
    """
    environment = folder / f"{version}-{python}"
    interpreter = environment / "bin" / "python"
    if not (environment / _READY).exists():
        _uv(folder, "venv", "--quiet", "--clear", "--python", python, str(environment))
        _install(folder, interpreter, f"pyspark[connect]=={version}", "--no-cache")
        pins = ("--constraint", str(_ROOT / "requirements-dev.txt"))
        _install(folder, interpreter, f"{wheel}[adjunct,spark-provided]", "setuptools", *pins)
        (environment / _READY).touch()
    _install(folder, interpreter, str(wheel), "--no-deps", "--reinstall")
    return interpreter


def _install(folder: Path, interpreter: Path, *arguments: str) -> None:
    _uv(folder, "pip", "install", "--quiet", "--python", str(interpreter), *arguments)


def _uv(folder: Path, *arguments: str) -> None:
    settings = {"UV_CACHE_DIR": str(folder / "cache"), "UV_LINK_MODE": "hardlink"}
    subprocess.run([str(_UV), *arguments], env={**os.environ, **settings}, cwd=folder, check=True)


def run_probe(
    interpreter: Path, folder: Path, settings: Sequence[tuple[str, str]], *options: str
) -> Run:
    """Runs all features, and returns their record, even if one of them failed."""
    environment = {**os.environ, "PYSPARK_PYTHON": str(interpreter), **dict(settings)}
    # The features are in the working tree, the package is not: it is in `core`.
    paths = filter(None, (str(_ROOT), environment.get("PYTHONPATH")))
    environment = preloading({**environment, "PYTHONPATH": os.pathsep.join(paths)})
    command = [str(interpreter), "-P", "-m", "tests.spark.matrix.probe", str(folder), *options]
    done = subprocess.run(
        command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True, check=False
    )
    run: Run = json.loads(done.stdout.splitlines()[-1])
    return run
