"""DataFrames written to tables, through Spark itself."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession

import sleeper
from sleeper.jobs.event import JobKind
from sleeper.jobs.status import JobState
from tests.spark.tables import NUMBERS, ingest_numbers, loaded, named, numbers_in

pytestmark = pytest.mark.slow


def frame_of(spark: SparkSession, count: int, partitions: int = 3) -> DataFrame:
    return spark.range(count, numPartitions=partitions).selectExpr(
        "concat('text ', id) AS text", f"{count} - 1 - id AS n"
    )


def write(frame: DataFrame, table: sleeper.Table, **options: object) -> None:
    frame.write.format("sleeper").mode("append").options(**named(table, **options)).save()


def states(table: sleeper.Table) -> list[JobState]:
    ports = table._instance
    recent = ports.jobs.recent(JobKind.INGEST, ports.table(table.name).ref.id)
    return [job.state for job in recent]


def data_files(table: sleeper.Table) -> list[Path]:
    folder = Path(table._instance.where) / table._instance.table(table.name).ref.id
    return [*folder.rglob("data/**/*.parquet")]


def test_rows_come_in_sorted_whatever_order_they_had(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    table = instance.create_table("t", NUMBERS, split_points=[100, 200])
    before = table.version
    write(frame_of(spark, 300), table)
    assert table.version == before + 1
    assert numbers_in(table) == [*range(300)]
    assert len(data_files(table)) == 3
    assert states(table) == [JobState.COMMITTED]


def test_a_job_that_comes_again_changes_nothing_and_writes_nothing(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    table = instance.create_table("t", NUMBERS)
    write(frame_of(spark, 10), table, jobId="j")
    version, files = table.version, len(data_files(table))
    write(frame_of(spark, 20), table, jobId="j")
    assert (table.version, len(data_files(table))) == (version, files)
    assert numbers_in(table) == [*range(10)]
    write(frame_of(spark, 10), table)
    write(frame_of(spark, 10), table)
    assert len(numbers_in(table)) == 30


def test_a_frame_without_rows_is_a_job_without_files(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    table = instance.create_table("t", NUMBERS)
    write(frame_of(spark, 10).filter("n < 0"), table, jobId="j")
    assert (numbers_in(table), states(table)) == ([], [JobState.COMMITTED])


def test_a_task_that_is_tried_again_leaves_only_orphans(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    table = instance.create_table("t", NUMBERS)

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        yield from batches
        if TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("the first try")

    write(frame_of(spark, 30).mapInArrow(fail_once, "text string, n long"), table)
    assert numbers_in(table) == [*range(30)]


def test_a_job_that_is_aborted_leaves_nothing_to_be_seen(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    table = instance.create_table("t", NUMBERS)
    ingest_numbers(table, [7])

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        yield from batches
        if TaskContext.get().partitionId() == 1:
            raise RuntimeError("this can never work")

    failing = frame_of(spark, 30).mapInArrow(fail, "text string, n long")
    with pytest.raises(PythonException, match="this can never work"):
        write(failing, table, jobId="j")
    assert numbers_in(table) == [7]
    assert states(table)[0] is JobState.FAILED
    write(frame_of(spark, 3), table, jobId="j")
    assert numbers_in(table) == [0, 1, 2, 7]


def test_a_null_key_refuses_the_job_and_names_the_row(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    table = instance.create_table("t", NUMBERS)
    bad = frame_of(spark, 10, partitions=1).selectExpr("text", "nullif(n, 5) AS n")
    with pytest.raises(PythonException, match=r"partition 0 of the DataFrame\), row 5: field 'n'"):
        write(bad, table)
    assert (numbers_in(table), data_files(table)) == ([], [])


def test_columns_that_do_not_fit_are_refused_before_anything_is_written(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    table = instance.create_table("t", NUMBERS)
    with pytest.raises(AnalysisException, match=r"missing: 'text'; not in the schema: 'other'"):
        write(frame_of(spark, 10).withColumnRenamed("text", "other"), table)
    with pytest.raises(AnalysisException, match="field 'n' is string, expected LongType"):
        write(frame_of(spark, 10).selectExpr("text", "text AS n"), table)
    assert data_files(table) == []


@pytest.mark.parametrize("mode", ["overwrite", "ignore", "error"])
def test_there_is_no_other_mode_than_append(
    spark: SparkSession, instance: sleeper.Instance, mode: str
) -> None:
    table = instance.create_table("t", NUMBERS)
    ingest_numbers(table, [7])
    options = named(table)
    with pytest.raises(AnalysisException, match=r"(?i)append"):
        frame_of(spark, 1).write.format("sleeper").mode(mode).options(**options).save()
    assert numbers_in(table) == [7]


def test_a_table_is_copied_into_another(spark: SparkSession, instance: sleeper.Instance) -> None:
    table = instance.create_table("t", NUMBERS, split_points=[10])
    ingest_numbers(table, range(20))
    other = instance.create_table("other", NUMBERS)
    write(loaded(spark, table), other)
    assert other.query().to_arrow() == table.query().to_arrow()
