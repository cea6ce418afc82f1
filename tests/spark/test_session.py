"""The Spark that the tests of this folder share."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession


def test_executors_run_python_on_arrow_batches(spark: SparkSession) -> None:
    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sleeper.clock

        rows = sum(b.num_rows for b in batches)
        yield pa.RecordBatch.from_pydict({"rows": [rows], "from": [sleeper.clock.__name__]})

    found = spark.range(1000, numPartitions=4).mapInArrow(count, "rows long, from string")
    rows = found.collect()
    assert sum(r["rows"] for r in rows) == 1000
    assert {r["from"] for r in rows} == {"sleeper.clock"}
