"""`write_table` adds the rows of a DataFrame once."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sleeper
from sleeper.errors import InvalidRequestError
from sleeper.jobs.event import JobKind
from sleeper.jobs.status import JobState
from sleeper.spark import write_table
from tests.spark.tables import NUMBERS, numbers_in
from tests.spark.test_write import data_files, frame_of, states


def test_rows_are_added_once_for_a_job(spark: SparkSession, instance: sleeper.Instance) -> None:
    table = instance.create_table("t", NUMBERS, split_points=[100, 200])
    where = instance._ports.where
    before = table.version
    result = write_table(frame_of(spark, 300), "t", where, job_id="j")
    assert (result.rows, result.number, table.version) == (300, before + 1, before + 1)
    assert numbers_in(table) == [*range(300)]
    again = write_table(frame_of(spark, 5), "t", where, job_id="j")
    assert (again.done_before, table.version) == (True, before + 1)
    # A table with rows of its own is read while it is written.
    doubled = spark.read.format("sleeper").options(instance=where, table="t").load()
    assert write_table(doubled, "t", where).rows == 300
    assert len(numbers_in(table)) == 600
    assert states(table) == [JobState.COMMITTED] * 2


def test_an_invalid_write_adds_nothing(spark: SparkSession, instance: sleeper.Instance) -> None:
    table = instance.create_table("t", NUMBERS)
    where = instance._ports.where
    nulls = frame_of(spark, 10).selectExpr("text", "nullif(n, 3) AS n")
    with pytest.raises(InvalidRequestError, match=r"of the DataFrame\).*null"):
        write_table(nulls, "t", where, job_id="j")
    assert (numbers_in(table), states(table)) == ([], [JobState.FAILED])
    with pytest.raises(InvalidRequestError, match="missing: 'n'"):
        write_table(nulls.drop("n"), "t", where)
    for mode in ("overwrite", "ignore"):
        with pytest.raises(InvalidRequestError, match="append"):
            write_table(frame_of(spark, 10), "t", where, mode=mode)
    assert len(data_files(table)) < 3
    assert write_table(frame_of(spark, 10), "t", where, job_id="j").rows == 10


def test_a_snapshot_table_is_replaced(
    spark: SparkSession, instance: sleeper.Instance, tmp_path: Path
) -> None:
    table = instance.create_table("t", NUMBERS, {"sleeper.table.type": "snapshot"})
    for count in (20, 10):
        write_table(frame_of(spark, count), "t", instance._ports.where, mode="overwrite")
    assert numbers_in(table) == [*range(10)]
    recent = instance._ports.jobs.tracker.recent(JobKind.INGEST, instance._ports.table("t").ref.id)
    assert len(recent) == 2
