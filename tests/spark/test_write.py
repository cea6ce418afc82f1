"""DataFrames written to tables, through Spark itself."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, PythonException
from pyspark.sql import DataFrame, SparkSession

import sleeper
from sleeper.jobs.event import JobKind
from sleeper.jobs.status import JobState
from tests.spark.tables import NUMBERS, ingest_numbers, loaded, numbers_in, source_options


def frame_of(spark: SparkSession, count: int, partitions: int = 3) -> DataFrame:
    return spark.range(count, numPartitions=partitions).selectExpr(
        "concat('text ', id) AS text", f"{count} - 1 - id AS n"
    )


def write(frame: DataFrame, table: sleeper.Table, **options: object) -> None:
    frame.write.format("sleeper").mode("append").options(**source_options(table, **options)).save()


def states(table: sleeper.Table) -> list[JobState]:
    ports = table._instance
    recent = ports.jobs.tracker.recent(JobKind.INGEST, ports.table(table.name).ref.id)
    return [job.state for job in recent]


def data_files(table: sleeper.Table) -> list[Path]:
    folder = Path(table._instance.where) / table._instance.table(table.name).ref.id
    return [*folder.rglob("data/**/*.parquet")]


def test_unsorted_rows_are_written_sorted(spark: SparkSession, instance: sleeper.Instance) -> None:
    table = instance.create_table("t", NUMBERS, split_points=[100, 200])
    before = table.version
    write(frame_of(spark, 300), table)
    assert table.version == before + 1
    assert numbers_in(table) == [*range(300)]
    assert len(data_files(table)) == 3
    for path in data_files(table):
        ids = [field.metadata[b"PARQUET:field_id"] for field in pq.read_schema(path)]
        assert ids == [b"1", b"2"]
    assert states(table) == [JobState.COMMITTED]


def test_a_repeated_job_writes_nothing(spark: SparkSession, instance: sleeper.Instance) -> None:
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


def test_a_retried_task_leaves_only_orphans(
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


def test_an_aborted_job_leaves_no_visible_rows(
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


TYPES = {
    "rowKeyFields": [{"name": "n", "type": "LongType"}],
    "valueFields": [
        {"name": "time", "type": "TimestampType"},
        {"name": "plain", "type": "TimestampType"},
        {"name": "money", "type": {"DecimalType": {"precision": 5, "scale": 2}}, "nullable": True},
        {"name": "tags", "type": {"ListType": {"elementType": "StringType"}}},
        {
            "name": "counts",
            "type": {"MapType": {"keyType": "StringType", "valueType": "LongType"}},
            "nullable": True,
        },
    ],
}
VALUES = {
    "n": "1",
    "time": "timestamp'2026-01-31 12:00:00+00:00'",
    "plain": "timestamp_ntz'2026-01-31 12:00:00'",
    "money": "cast(-1.25 AS decimal(38, 10))",
    "tags": "array('a', '')",
    "counts": "map('x', 2)",
}


def values(spark: SparkSession, **others: str) -> DataFrame:
    """One row of `TYPES`, in types of Spark that are wider."""
    columns = ", ".join(f"{text} AS {name}" for name, text in (VALUES | others).items())
    return spark.sql(f"SELECT {columns}")


def test_times_are_the_same_instants_in_any_time_zone_of_the_session(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    table = instance.create_table("t", TYPES)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        write(values(spark), table)
        instants = [f"unix_micros({name})" for name in ("time", "plain")]
        back = loaded(spark, table).selectExpr(*instants).first()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    noon = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
    (row,) = table.query().to_arrow().to_pylist()
    assert (row["time"], row["plain"]) == (noon, noon)
    assert tuple(back) == (noon.timestamp() * 1e6,) * 2
    assert (row["money"], row["tags"], row["counts"]) == (Decimal("-1.25"), ["a", ""], [("x", 2)])


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("money", "cast(1234.5 AS decimal(38, 10))", "field 'money'"),
        ("money", "cast(1.005 AS decimal(38, 10))", "field 'money'"),
        ("tags", "array('a', null)", "field 'tags' .*: null inside a list"),
        ("tags", "cast(null AS array<string>)", "field 'tags' .*: null, but"),
        ("counts", "map('x', null)", "field 'counts' .*: null inside a map"),
    ],
)
def test_an_invalid_value_is_named_in_the_error(
    spark: SparkSession, instance: sleeper.Instance, name: str, text: str, said: str
) -> None:
    table = instance.create_table("t", TYPES)
    with pytest.raises(PythonException, match=rf"of the DataFrame\), row 1: {said}"):
        write(values(spark, **{name: text}), table)
    assert data_files(table) == []


def test_an_unknown_field_type_is_refused(spark: SparkSession, instance: sleeper.Instance) -> None:
    table = instance.create_table("t", TYPES)
    with pytest.raises(AnalysisException, match="field 'tags' is struct"):
        write(values(spark, tags="named_struct('a', 1)"), table)


def test_a_path_and_partitions_are_refused_and_not_ignored(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    table = instance.create_table("t", NUMBERS)
    writer = (
        frame_of(spark, 3).write.format("sleeper").mode("append").options(**source_options(table))
    )
    with pytest.raises(AnalysisException, match="unknown option 'path'"):
        writer.save("t")
    with pytest.raises(IllegalArgumentException, match="partitioning"):
        writer.partitionBy("n").save()
    assert numbers_in(table) == []


def test_columns_that_do_not_fit_are_refused_before_anything_is_written(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    table = instance.create_table("t", NUMBERS)
    with pytest.raises(AnalysisException, match="table: not in the schema: 'other'"):
        write(frame_of(spark, 10).withColumnRenamed("text", "other"), table)
    with pytest.raises(AnalysisException, match="field 'n' is string, expected LongType"):
        write(frame_of(spark, 10).selectExpr("text", "text AS n"), table)
    assert data_files(table) == []


@pytest.mark.parametrize("mode", ["overwrite", "ignore", "error"])
def test_modes_other_than_append_are_refused(
    spark: SparkSession, instance: sleeper.Instance, mode: str
) -> None:
    table = instance.create_table("t", NUMBERS)
    ingest_numbers(table, [7])
    options = source_options(table)
    with pytest.raises(AnalysisException, match=r"(?i)append"):
        frame_of(spark, 1).write.format("sleeper").mode(mode).options(**options).save()
    assert numbers_in(table) == [7]


def test_a_table_is_copied_into_another(spark: SparkSession, instance: sleeper.Instance) -> None:
    table = instance.create_table("t", NUMBERS, split_points=[10])
    ingest_numbers(table, range(20))
    other = instance.create_table("other", NUMBERS)
    write(loaded(spark, table), other)
    assert other.query().to_arrow() == table.query().to_arrow()
