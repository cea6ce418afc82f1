"""JVM options for tests, whose JVMs end before the optimizing compiler pays off.

`python -m tests.spark.java` writes an archive of Spark's loaded classes beside `.venv`'s
interpreter. `make test` does so once; a JVM starts in a third of the CPU time with it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

VARIABLE = "SPARK_SUBMIT_OPTS"
"""The environment variable from which `spark-submit` takes options of its JVM."""

ARCHIVE = Path(sys.prefix) / "spark.jsa"
_QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xlog:disable"
_PROGRAM = """
import sys
from pathlib import Path
from sleeper.spark.session import start_session
from sleeper.spark.settings import SparkSettings

folder = Path(sys.argv[1])
with start_session("archive", SparkSettings("local[2]"), folder) as spark:
    rows = spark.range(1000).selectExpr("id", "cast(id AS string) AS text").repartition(4, "text")
    rows.sortWithinPartitions("text").write.parquet(str(folder / "rows"))
    rows = spark.read.parquet(str(folder / "rows")).filter("id > 10")
    print(rows.mapInArrow(lambda batches: batches, rows.schema).count())
"""


def set_java_options() -> None:
    """Sets the options for all processes of the tests. The archive is used if it exists."""
    os.environ.setdefault(VARIABLE, f"{_QUICK} -XX:SharedArchiveFile={ARCHIVE}")


def find_java() -> str | None:
    """Returns the program that Spark runs; None if Java is not installed."""
    home = os.environ.get("JAVA_HOME")
    if home and Path(home, "bin", "java").exists():
        return str(Path(home, "bin", "java"))
    return shutil.which("java")


def write_archive() -> None:
    """Writes the archive, unless Java is not installed."""
    if find_java() is None:
        return
    with TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-c", _PROGRAM, folder],
            env={**os.environ, VARIABLE: f"{_QUICK} -XX:ArchiveClassesAtExit={ARCHIVE}"},
            stdout=subprocess.DEVNULL,
            check=True,
        )


if __name__ == "__main__":
    write_archive()
