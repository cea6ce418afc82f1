"""One small Spark for all tests of a process. Without Java 17 or 21 they are skipped."""

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sleeper
import sleeper.spark
from tests.spark.session import spark_builder


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session of two cores. Its executors' Python is the one that runs the tests."""
    home = os.environ.get("JAVA_HOME")
    if not (home and Path(home, "bin", "java").exists()) and shutil.which("java") is None:
        pytest.skip("Spark needs Java 17: `make install` says how to get it")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with warnings.catch_warnings():
        # Its own: a socket to the launcher that it leaves to the collector.
        warnings.simplefilter("ignore", ResourceWarning)
        session = spark_builder(tmp_path_factory.mktemp("spark")).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    sleeper.spark.register(session)
    yield session
    session.stop()


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[sleeper.Instance]:
    """An instance in a folder of its own."""
    with sleeper.create_instance(tmp_path / "instance") as made:
        yield made
