"""The Spark that the tests of this folder share."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from sleeper.retries import JOB_RETRY_SECONDS, RETRY_VARIABLE
from tests.spark.session import preloading


def test_executors_run_python_on_arrow_batches(spark: SparkSession) -> None:
    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sleeper.clock

        rows = sum(b.num_rows for b in batches)
        yield pa.RecordBatch.from_pydict({"rows": [rows], "from": [sleeper.clock.__name__]})

    result = spark.range(1000, numPartitions=4).mapInArrow(count, "rows long, from string")
    rows = result.collect()
    assert sum(r["rows"] for r in rows) == 1000
    assert {r["from"] for r in rows} == {"sleeper.clock"}


def test_the_preloaded_libraries_start_no_thread_before_a_fork() -> None:
    program = "import os, sys; print('sleeper.spark.cluster' in sys.modules)\n"
    program += "print(len(os.listdir('/proc/self/task')))"
    # The name of the daemon stands among the arguments, as in those of the daemon.
    command = [sys.executable, "-c", program, "pyspark.daemon"]
    done = subprocess.run(
        command, env=preloading(os.environ), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "1"]


_PROGRAM = """
import sys
from pathlib import Path
import pyarrow as pa
from sleeper.spark.session import start_session
from sleeper.spark.settings import SparkSettings

def seconds(batches):
    from sleeper.retries import retry_seconds
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"seconds": [retry_seconds()]})

with start_session("retries", SparkSettings("local[1]"), Path(sys.argv[1])) as spark:
    (row,) = spark.range(1, numPartitions=1).mapInArrow(seconds, "seconds double").collect()
    print(row["seconds"])
"""


def test_executors_retry_as_jobs_before_a_task_opens_a_bucket(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path)]
    # The driver's own time is not that of executors.
    environment = {**os.environ, RETRY_VARIABLE: "1"}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert float(process.stdout) == JOB_RETRY_SECONDS
