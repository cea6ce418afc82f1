"""The package on other versions of PySpark and Python, as far as their absence can be acted.

tests/spark/matrix runs the real versions of PySpark.
"""

import subprocess
import sys
from pathlib import Path

import pyspark

_ON_SPARK_4_0 = """
import sys
from pyspark.sql import datasource

sys.modules["pyspark.sql.streaming.datasource"] = None
del datasource.DataSourceStreamArrowWriter

import pyspark_sleeper, pyspark_sleeper_changes, pyspark_sleeper_stash
from sleeper.spark.writer import SleeperStreamWriter

for package in (pyspark_sleeper, pyspark_sleeper_changes, pyspark_sleeper_stash):
    print(package.DefaultSource.name())
print(issubclass(SleeperStreamWriter, datasource.DataSourceArrowWriter))
"""
_ON_SPARK_3_5 = """
import sys
import pyspark.sql

sys.modules["pyspark.sql.datasource"] = None
sys.modules["pyspark.sql.streaming.datasource"] = None

import sleeper.spark
from sleeper.errors import InvalidRequestError

for call in (sleeper.spark.register, lambda spark: sleeper.spark.read_stash(spark, "s", "t")):
    try:
        call(None)
    except InvalidRequestError as error:
        print(error)
print(sleeper.spark.read_table.__name__, sleeper.spark.write_table.__name__)
"""
_ON_PYTHON_3_10 = "import sys; sys.hexversion = 0x030A0DF0; import sleeper"


def _run(program: str, status: int = 0) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout or done.stderr


def test_spark_4_0_has_all_formats_and_its_streams_write_batches() -> None:
    assert _run(_ON_SPARK_4_0).splitlines() == [
        "sleeper",
        "sleeper-changes",
        "sleeper-stash",
        "True",
    ]


def test_spark_3_5_refuses_formats_with_the_version_that_has_them() -> None:
    *refused, functions = _run(_ON_SPARK_3_5).splitlines()
    expected = (
        f"PySpark {pyspark.__version__} has no Python data sources (expected PySpark 4.0 or newer; "
        "read_table and write_table need none)"
    )
    assert refused == [f"the format {name}: {expected}" for name in ("sleeper", "sleeper-stash")]
    assert functions == "read_table write_table"


def test_an_older_python_is_refused_with_its_version() -> None:
    line = _run(_ON_PYTHON_3_10, status=1).splitlines()[-1]
    own = sys.version.split()[0]
    expected = f"sleeper needs Python 3.11 or newer, and {Path(sys.executable)} is {own}"
    assert line == f"ImportError: {expected}"
