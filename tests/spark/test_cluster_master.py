"""Bulk imports on a cluster, whose master this process does not start."""

from pathlib import Path

from sleeper.properties.instance import SPARK_CONF, SPARK_WAIT_SECONDS
from tests.spark.imports import Import, check_stored, instance_to_import_into, write
from tests.spark.standalone import standalone_master, standalone_worker

ROWS = 4_000


def test_an_import_runs_on_a_standalone_cluster_that_has_a_worker(tmp_path: Path) -> None:
    source = write(tmp_path / "rows", ROWS)
    impatient = {SPARK_WAIT_SECONDS.name: "2"}
    small = {SPARK_CONF.name: "spark.executor.memory=512m,spark.executor.cores=1"}
    with standalone_master(tmp_path) as master:
        with instance_to_import_into(tmp_path / "impatient", impatient) as instance:
            output = Import(instance, source, master).end(1)
        assert f"error: {master} offered no executor in 2 s; it reported: " in output
        assert "Connected to Spark cluster with app ID app-" in output
        assert "Traceback" not in output
        with (
            instance_to_import_into(tmp_path / "instance", small) as instance,
            standalone_worker(master, tmp_path),
        ):
            output = Import(instance, source, master, "j", "--conf", "spark.cores.max=2").end()
            assert f"{ROWS:,} rows" in output
            check_stored(instance, ROWS)
