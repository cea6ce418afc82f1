"""Runs all features on the PySpark of this Python: `python -P -m tests.spark.matrix.probe FOLDER`.

Prints their record as JSON. It runs in environments that have nothing of the tests, and starts the
session as a user does, without the package. With `--connect`, the session is one of Spark Connect,
whose server it starts.
"""

import argparse
import hashlib
import json
import platform
import sys
import traceback
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

import sleeper
from sleeper.errors import InvalidRequestError
from sleeper.spark.jdbc_driver import jar_settings
from tests.spark.matrix.features import FEATURES, Feature, World

_SETTINGS = {"spark.sql.shuffle.partitions": "3", "spark.sql.session.timeZone": "America/Lima"}


def main() -> int:
    """Prints the record. Returns the exit status: 1 if a feature failed."""
    parser = argparse.ArgumentParser("tests.spark.matrix.probe", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--connect", action="store_true")
    parser.add_argument("--only", default="", help="part of the names of features")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    chosen = [feature for feature in FEATURES if arguments.only in feature.name]
    with sleeper.create_instance(folder / "instance") as instance:
        world = World(_start(folder, arguments.connect), instance, folder)
        outcomes = {feature.name: run_feature(feature, world) for feature in chosen}
        world.spark.stop()
    record = {
        "pyspark": pyspark.__version__,
        "python": platform.python_version(),
        "features": outcomes,
    }
    print(json.dumps(record))
    return int(any("failed" in outcome for outcome in outcomes.values()))


def _start(folder: Path, uses_connect: bool) -> SparkSession:
    if uses_connect:
        builder, settings = SparkSession.builder.remote("local[2]"), _SETTINGS
    else:
        builder = SparkSession.builder.master("local[2]")
        settings = _SETTINGS | jar_settings() | _driver_settings(folder)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if not uses_connect:
        session.sparkContext.setLogLevel("OFF")
    return session


def _driver_settings(folder: Path) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }


def run_feature(feature: Feature, world: World) -> dict[str, object]:
    """Returns the digest of the feature's rows, the error of one that the version lacks, or why it
    failed.
    """
    sys.stderr.write(f"PySpark {pyspark.__version__}: {feature.name}\n")
    version = tuple(map(int, pyspark.__version__.split(".")[:2]))
    try:
        outcome = feature.run(world)
    except InvalidRequestError as error:
        if version < feature.since and f"expected PySpark {_text(feature.since)}" in str(error):
            return {"needs": _text(feature.since)}
        if is_remote() and "it uses Spark Connect" in str(error):
            return {"needs": "a session without Connect"}
        return _fail(feature)
    except Exception as error:
        # Spark's own error of a format that it does not find.
        if version < feature.since and "DATA_SOURCE_NOT_FOUND" in str(error):
            return {"needs": _text(feature.since)}
        return _fail(feature)
    if outcome.rows != outcome.expected:
        sys.stderr.write(f"{feature.name}: {outcome.rows}\nexpected: {outcome.expected}\n")
        return {"failed": f"{len(outcome.rows)} rows, expected {len(outcome.expected)} others"}
    digest = hashlib.sha256(repr(outcome.rows).encode()).hexdigest()[:16]
    return {"rows": len(outcome.rows), "digest": digest}


def _fail(feature: Feature) -> dict[str, object]:
    sys.stderr.write(f"{feature.name}: {traceback.format_exc()}\n")
    return {"failed": traceback.format_exc().strip().splitlines()[-1]}


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


if __name__ == "__main__":
    sys.exit(main())
