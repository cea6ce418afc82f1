"""The data source on older versions of PySpark, which lack modules and classes."""

import subprocess
import sys

import pyspark

_PROGRAM = """
import sys
from pyspark.sql import DataFrame, datasource

# As in PySpark 4.0.
sys.modules["pyspark.sql.streaming.datasource"] = None
del datasource.DataSourceStreamArrowWriter, DataFrame.repartitionById

import pyspark_sleeper, pyspark_sleeper_changes, pyspark_sleeper_stash
from sleeper.errors import InvalidRequestError
from sleeper.spark import versions

for package in (pyspark_sleeper, pyspark_sleeper_changes, pyspark_sleeper_stash):
    print(package.DefaultSource.name())
try:
    pyspark_sleeper.DefaultSource({}).streamWriter(None, False)
except InvalidRequestError as error:
    print(error)
try:
    versions.check_partitions_by_number()
except InvalidRequestError as error:
    print(error)
"""


def test_older_versions_have_the_formats_and_refuse_what_they_lack() -> None:
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *formats, stream, partitions = done.stdout.splitlines()
    assert formats == ["sleeper", "sleeper-changes", "sleeper-stash"]
    version = pyspark.__version__
    assert stream.startswith(f"PySpark {version} cannot write a stream to the format sleeper (")
    assert partitions.startswith(f"partitions: PySpark {version} cannot divide a DataFrame")
