"""Streams into and out of tables deliver every row once, also on repetition."""

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import sleeper
from tests.spark.tables import NUMBERS, ingest_numbers, numbers_in, source_options

TRIES = 5


def copy_available_rows(
    spark: SparkSession,
    source: sleeper.Table,
    target: sleeper.Table,
    checkpoint: Path,
    **options: object,
) -> StreamingQuery:
    """Streams all available rows from one table to another and returns the query."""
    rows = spark.readStream.format("sleeper").options(**source_options(source, **options)).load()
    sink = rows.writeStream.format("sleeper").options(**source_options(target))
    sink = sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    for _ in range(TRIES):
        query = sink.start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            # Spark gives the Python of a source ten seconds to start, which no setting changes.
            if "failed to connect back" not in str(error):
                raise
        else:
            return query
    raise AssertionError(f"Python did not start within ten seconds in {TRIES} tries")


def test_a_stream_follows_a_table_and_resumes_from_its_checkpoint(
    spark: SparkSession, instance: sleeper.Instance, tmp_path: Path
) -> None:
    source = instance.create_table("source", NUMBERS, split_points=[50])
    target = instance.create_table("target", NUMBERS)
    for first in (0, 10, 20):
        ingest_numbers(source, range(first, first + 10))
    options = {"maxFilesPerTrigger": 1, "follower": "copy"}
    query = copy_available_rows(spark, source, target, tmp_path / "c", **options)
    assert [p.numInputRows for p in query.recentProgress] == [10, 10, 10]
    assert numbers_in(target) == [*range(30)]
    instance.run_until_idle(workers=1)  # compacts
    ingest_numbers(source, range(30, 100))
    copy_available_rows(spark, source, target, tmp_path / "c", **options)
    assert numbers_in(target) == [*range(100)]
    (follower,) = source._instance.table("source").state.followers()
    assert follower.position > 0


@pytest.mark.parametrize("mode", ["complete", "update"])
def test_a_stream_only_adds(
    spark: SparkSession, instance: sleeper.Instance, tmp_path: Path, mode: str
) -> None:
    source, target = (instance.create_table(name, NUMBERS) for name in ("source", "target"))
    ingest_numbers(source, range(10))
    rows = spark.readStream.format("sleeper").options(**source_options(source)).load()
    counts = rows.groupBy("text").count().selectExpr("count AS n", "text")
    sink = counts.writeStream.format("sleeper").options(**source_options(target)).outputMode(mode)
    sink = sink.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    with pytest.raises((AnalysisException, StreamingQueryException), match=r"(?i)append|update"):
        sink.start().awaitTermination()
    assert numbers_in(target) == []


def test_a_stream_of_a_recreated_table_is_refused(
    spark: SparkSession, instance: sleeper.Instance, tmp_path: Path
) -> None:
    target = instance.create_table("target", NUMBERS)
    for first in (0, 10):
        source = instance.create_table("source", NUMBERS)
        ingest_numbers(source, range(first, first + 10))
        if first == 0:
            copy_available_rows(spark, source, target, tmp_path / "c")
            instance.delete_table("source")
    with pytest.raises(StreamingQueryException, match="start with a new checkpoint"):
        copy_available_rows(spark, source, target, tmp_path / "c")
    copy_available_rows(spark, source, target, tmp_path / "new")
    assert numbers_in(target) == [*range(20)]


def test_a_repeated_micro_batch_counts_once(
    spark: SparkSession, instance: sleeper.Instance, tmp_path: Path
) -> None:
    source, target = (instance.create_table(name, NUMBERS) for name in ("source", "target"))
    ingest_numbers(source, range(10))
    copy_available_rows(spark, source, target, tmp_path / "c")
    version = target.version
    # As if the driver had died after the table's commit and before the checkpoint's.
    for result in (tmp_path / "c" / "commits").glob("*0*"):
        result.unlink()
    copy_available_rows(spark, source, target, tmp_path / "c")
    assert (numbers_in(target), target.version) == ([*range(10)], version)
    ingest_numbers(source, range(10, 20))
    copy_available_rows(spark, source, target, tmp_path / "c")
    assert numbers_in(target) == [*range(20)]
