"""A cluster that offers no executor. `tests/spark_cluster/` has one with workers."""

from pathlib import Path

from sleeper.properties.instance import SPARK_WAIT_SECONDS
from tests.spark.imports import Import, instance_to_import_into, write
from tests.spark.standalone import standalone_master


def test_a_master_without_workers_is_reported_in_time(tmp_path: Path) -> None:
    source = write(tmp_path / "rows", 40)
    impatient = {SPARK_WAIT_SECONDS.name: "2"}
    with (
        standalone_master(tmp_path) as master,
        instance_to_import_into(tmp_path / "impatient", impatient) as instance,
    ):
        output = Import(instance, source, master).end(1)
    assert f"error: {master} offered no executor in 2 s; it reported: " in output
    assert "Connected to Spark cluster with app ID app-" in output
    assert "Traceback" not in output
