"""`make spark-matrix`: runs the features on all versions, and writes the record and the page.

Environments are kept in a folder outside the working tree, about 1 GB for each version.
"""

import argparse
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.servers.postgres import Postgres, postgres
from tests.spark.matrix.database import database_settings
from tests.spark.matrix.environments import build_wheel, prepare, run_probe
from tests.spark.matrix.record import Run, has_formats, record_run

VERSIONS = ("3.5.9", "4.0.5", "4.1.4", "4.2.1", "4.3.0")
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def main() -> int:
    """Returns the exit status: 1 if a feature failed. The record of its version stays."""
    parser = argparse.ArgumentParser("python -m tests.spark.matrix", description=__doc__)
    parser.add_argument("versions", nargs="*", default=VERSIONS, help="releases of PySpark")
    parser.add_argument("--python", default=_PYTHON, help="the version of Python")
    parser.add_argument("--folder", type=Path, default=_cache(), help="the environments")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    wheel = build_wheel(folder)
    failed = False
    with postgres() as database:
        for version in arguments.versions:
            interpreter = prepare(folder, version, arguments.python, wheel)
            run = _run(interpreter, folder, database)
            outcomes = [*run["features"].items(), *run.get("connect", {}).items()]
            failures = [(name, each["failed"]) for name, each in outcomes if "failed" in each]
            for name, reason in failures:
                sys.stderr.write(f"PySpark {version}: {name}: {reason}\n")
            failed = failed or bool(failures)
            if not failures:
                record_run(run)
    return int(failed)


def _run(interpreter: Path, folder: Path, database: Postgres) -> Run:
    """Returns the record, with that of Spark Connect on a version with formats."""
    settings = database_settings(database)
    with TemporaryDirectory(dir=folder) as own:
        run = run_probe(interpreter, Path(own), settings)
    if not has_formats(run):
        return run
    with TemporaryDirectory(dir=folder) as own:
        connect = run_probe(interpreter, Path(own), settings, "--connect")
    return {**run, "connect": connect["features"]}


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "sleeper-spark-matrix"


if __name__ == "__main__":
    sys.exit(main())
