"""Spark finds the formats of the installed package."""

import os
import subprocess
import sys
from pathlib import Path

from tests.spark.imports import instance_to_import_into

_PROGRAM = """
import sys
from pyspark.sql import SparkSession

def show(rows):
    print(rows.columns, rows.count())

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
table = {"instance": sys.argv[1], "table": "t"}
show(spark.read.format("sleeper").options(**table).load())
changes = spark.readStream.format("sleeper-changes").options(**table).load()
print(changes.columns[0])

import sleeper.spark

sleeper.spark.register(spark)
show(spark.read.format("sleeper").options(**table).load())
"""


def test_a_session_finds_the_formats_without_a_call(tmp_path: Path) -> None:
    with instance_to_import_into(tmp_path / "instance") as instance:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, instance.where],
            cwd=tmp_path,
            env=os.environ | {"PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            check=False,
        )
    rows = "['k', 's', 'v'] 0"
    assert done.stdout.splitlines() == [rows, "number", rows], done.stderr
