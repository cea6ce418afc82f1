"""A client with a Spark session: bulk imports, writes of frames, and reads of tables.

It reads a JSON object a line, as `simulation.soak.client` does, with one of these arguments:
`bulk-import TABLE SOURCE JOB`, `spark-write TABLE FILE JOB`, `spark-read TABLE FILE`.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import boto3
import pyarrow.parquet as pq
from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import sleeper.spark
from simulation.soak.client import ROWS
from sleeper import INSTANCE_VARIABLE
from sleeper.bulk_import.service import bulk_import_paths
from sleeper.errors import SleeperError
from sleeper.opening import open_instance
from sleeper.spark.cluster import SparkCluster
from tests.spark.session import spark_builder

_FAILURES = (SleeperError, PySparkException, BotoCoreError, ClientError, Boto3Error)
_SHOWN_CHARACTERS = 1500


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        spark = spark_builder(Path(folder)).getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        sleeper.spark.register(spark)
        for line in sys.stdin:
            request = json.loads(line)
            print(json.dumps(answer(spark, request)), file=answers, flush=True)


def answer(spark: SparkSession, request: dict[str, Any]) -> dict[str, object]:
    """Does what a line says."""
    command, table, *arguments = request["arguments"]
    try:
        for path, bucket, key in request["uploads"]:
            boto3.client("s3").upload_file(path, bucket, key)
        match command:
            case "bulk-import":
                bulk_import(spark, table, *arguments)
            case "spark-write":
                write(spark, table, *arguments)
            case "spark-read":
                read(spark, table, *arguments)
    except _FAILURES as error:
        text = f"{type(error).__name__}: {error}"
        return {"status": 1, "output": "", "error": text[-_SHOWN_CHARACTERS:]}
    return {"status": 0, "output": "", "error": ""}


def bulk_import(spark: SparkSession, table: str, source: str, job_id: str) -> None:
    """Imports a file, as `sleeper bulk-import` does, in this session."""
    instance = open_instance()
    try:
        bulk_import_paths(instance, table, [source], lambda: SparkCluster(spark), job_id)
    finally:
        instance.close()


def write(spark: SparkSession, table: str, path: str, job_id: str) -> None:
    """Appends the rows of a local file as a frame."""
    options = {"instance": os.environ[INSTANCE_VARIABLE], "table": table, "jobId": job_id}
    frame = spark.createDataFrame(pq.read_table(path)).repartition(3)
    frame.write.format("sleeper").mode("append").options(**options).save()


def read(spark: SparkSession, table: str, path: str) -> None:
    """Reads all rows of a table into a local file."""
    options = {"instance": os.environ[INSTANCE_VARIABLE], "table": table}
    frame = spark.read.format("sleeper").options(**options).load()
    pq.write_table(frame.toArrow().cast(ROWS), path)


if __name__ == "__main__":
    main()
