"""A stream of changes has each change once in its sink, also if a query fails between."""

from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import sleeper
from tests.spark.tables import NUMBERS, ingest_numbers, source_options

TRIES = 5


class Killed(RuntimeError):
    """Ends a query after a batch was written and before Spark recorded it."""


def test_a_stream_of_changes_continues_after_a_failed_batch(
    spark: SparkSession, instance: sleeper.Instance, tmp_path: Path
) -> None:
    table = instance.create_table("t", NUMBERS, split_points=[5])
    ingest_numbers(table, range(10))
    table.delete(ranges=[(3, 5)])
    ingest_numbers(table, range(20, 22))
    fails = [True]

    def write(batch: DataFrame, number: int) -> None:
        # The batch's number names its output, so a repeated batch replaces it.
        batch.write.mode("overwrite").parquet(str(tmp_path / "copy" / f"batch={number}"))
        if number == 1 and fails:
            fails.clear()
            raise Killed("killed after the batch was written")

    def run() -> None:
        options = source_options(table, follower="copy", maxTransactionsPerTrigger=1)
        changes = spark.readStream.format("sleeper-changes").options(**options).load()
        sink = changes.writeStream.foreachBatch(write)
        sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint"))
        sink.trigger(availableNow=True).start().awaitTermination()

    for _ in range(TRIES):
        try:
            run()
            break
        except StreamingQueryException as error:
            # Spark gives the Python of a source ten seconds to start, which no setting changes.
            if "Killed" not in str(error) and "failed to connect back" not in str(error):
                raise
    assert not fails
    ingest_numbers(table, [30])
    run()
    copied = spark.read.parquet(str(tmp_path / "copy")).orderBy("number", "row.n")
    rows = [(row.number, row.operation, row.row and row.row.n) for row in copied.collect()]
    expected = [
        (change.number, change.operation, n)
        for change in table.changes()
        for n in change.rows["n"].to_pylist() or [None]
    ]
    assert rows == expected
    assert len(rows) == 14
