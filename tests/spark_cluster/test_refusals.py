"""Faults of a cluster are one line that says what is wrong, and where."""

import time

import pytest

import sleeper
from tests.spark.imports import PATIENCE_SECONDS
from tests.spark_cluster.cluster import Cluster
from tests.spark_cluster.installation import make_environment

pytestmark = pytest.mark.timeout(2 * PATIENCE_SECONDS)


def test_a_python_without_the_wheel_is_named_with_its_host(
    cluster: Cluster, instance: sleeper.Instance
) -> None:
    other = make_environment(cluster.folder / "other")
    settings = cluster.settings() | {"spark.pyspark.python": other.python}
    output = refusal(cluster, "without_wheel", settings=settings)
    assert "the Python of an executor on host worker-" in output
    assert "lacks a package: No module named 'sleeper' (install sleeper there" in output


def test_executors_without_credentials_are_named(
    cluster: Cluster, instance: sleeper.Instance
) -> None:
    settings = cluster.settings(credentials=False)
    output = refusal(cluster, "without_credentials", settings=settings)
    assert "error: no credentials of AWS for bucket sleeper-" in output
    assert "on host worker-" in output


def test_a_master_that_cannot_be_reached_is_named_at_once(
    cluster: Cluster, instance: sleeper.Instance
) -> None:
    nobody = f"{cluster.network.address.rpartition('.')[0]}.99"
    master = f"spark://driver:1,{nobody}:7077"
    start = time.monotonic()
    output = refusal(cluster, "unreachable", master)
    # Spark gives up after a minute.
    assert time.monotonic() - start < 60
    assert f"error: cannot connect to the master {master}: driver:1: " in output
    assert f"; {nobody}:7077: " in output


def refusal(
    cluster: Cluster,
    name: str,
    master: str | None = None,
    settings: dict[str, str] | None = None,
) -> str:
    """Returns the error of an import, which is a line."""
    driver = cluster.start_import("imported", "r", name=name, master=master, settings=settings)
    output = driver.end(1)
    assert "Traceback" not in output
    (line,) = [line for line in output.splitlines() if line.startswith("error: ")]
    return line
