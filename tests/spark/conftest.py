"""One small Spark for all tests of a process. Without Java 17 or 21 they are skipped."""

import os
import sys
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sleeper
import sleeper.spark
from sleeper.bulk_export.properties import BULK_EXPORT_BUCKET
from sleeper.properties.deployed import BULK_IMPORT_BUCKET
from tests.servers.aws_instance import AwsInstance, AwsServers, aws_instance
from tests.spark.java import find_java
from tests.spark.session import PRELOADED, spark_builder


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session of two cores. Its executors' Python is the one that runs the tests."""
    if find_java() is None:
        pytest.skip("Spark needs Java 17: `make install` says how to get it")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", str(PRELOADED), prepend=os.pathsep)
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


@pytest.fixture(scope="session")
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of local copies of states of all instances on AWS.

    Spark starts its Python daemons, which load for seconds, once for each environment.
    """
    return tmp_path_factory.mktemp("states")


@pytest.fixture
def aws(spark: SparkSession, aws_servers: AwsServers, state_folder: Path) -> Iterator[AwsInstance]:
    """An instance on servers of AWS's services, to which Spark's Python finds its way too.

    It has what `spark.executorEnv` would give it.
    """
    buckets = {p.name: f"made-{uuid.uuid4().hex}" for p in (BULK_EXPORT_BUCKET, BULK_IMPORT_BUCKET)}
    with aws_instance(aws_servers, state_folder, buckets) as made:
        for bucket in buckets.values():
            made.s3().create_bucket(Bucket=bucket)
        environment = spark.sparkContext.environment
        before = dict(environment)
        environment.update(made.environment)
        sleeper.spark.register(spark)
        yield made
        environment.clear()
        environment.update(before)
        sleeper.spark.register(spark)
