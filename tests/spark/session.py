"""The small, quiet Spark session of the tests, which writes to its own folder only."""

import os
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from sleeper.spark.jdbc_driver import jar_settings

PRELOADED = Path(__file__).with_name("preloaded")
"""A folder of PYTHONPATH with which Spark's Python daemons load the libraries once."""


def preloading(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a process whose Spark has such daemons."""
    paths = filter(None, (str(PRELOADED), environment.get("PYTHONPATH")))
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)}


def spark_builder(folder: Path, cores: int = 2) -> SparkSession.Builder:
    """Settings of a session whose files stand below the folder; a task is tried twice."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder} -XX:+UseSerialGC",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "4",
        "spark.default.parallelism": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    builder = SparkSession.builder.master(f"local[{cores},2]").appName("sleeper-tests")
    for name, value in (settings | jar_settings()).items():
        builder = builder.config(name, value)
    return builder
