"""A streaming query into a table, in a process that a test kills: see test_killed_sink.

`python -m tests.spark.killed_sink INSTANCE CHECKPOINT SCRATCH` gets Spark ready and says
`ready`; told `go` it starts the query and says `started`; told `stop` it ends well. The
source gives the numbers from 0, some hundred a batch, the same whenever a batch is repeated.
"""

import os
import sys
from pathlib import Path

import sleeper.spark
from tests.spark.session import spark_builder


def main(instance: str, checkpoint: str, scratch: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = spark_builder(Path(scratch)).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    sleeper.spark.register(spark)
    source = spark.readStream.format("rate-micro-batch")
    source = source.options(rowsPerBatch=300, numPartitions=2, startTimestamp=0)
    rows = source.load().selectExpr("value AS n", "'x' AS text")
    sink = rows.writeStream.format("sleeper").options(instance=instance, table="t")
    print("ready", flush=True)
    if sys.stdin.readline().strip() == "go":
        query = sink.option("checkpointLocation", checkpoint).start()
        print("started", flush=True)
        if sys.stdin.readline().strip() == "stop":
            query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
