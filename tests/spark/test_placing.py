"""Placement of partitions on a Spark version without placement hints."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id

from sleeper.spark.versions import assign_by_hash


@pytest.mark.parametrize("tasks", [1, 2, 7, 64])
def test_each_task_gets_a_partition_of_its_own_number(spark: SparkSession, tasks: int) -> None:
    pieces = spark.range(0, 3 * tasks).selectExpr(f"cast(id % {tasks} as int) as task")
    placed = assign_by_hash(pieces, tasks, "task")
    assert placed.rdd.getNumPartitions() == tasks
    assert placed.columns == ["task"]
    result = placed.withColumn("at", spark_partition_id()).collect()
    assert sorted((row["task"], row["at"]) for row in result) == sorted(
        (task, task) for task in range(tasks) for _ in range(3)
    )
