"""What older versions of PySpark lack, and what stands in for it.

| before | lacks | so that |
|---|---|---|
| 4.2 | limits of micro-batches | a micro-batch has everything up to the newest version |
| 4.2 | the argument `timezone` of `to_arrow_schema` | times are in UTC without it |
| 4.1 | writes of streams as Arrow batches | a writer is also one of batches, so it gets them |
| 4.1 | `register` of a format that Spark found itself | the session keeps that one |
| 4.1 | `DataFrame.repartitionById` | `assign_by_number` divides by hash |
| 4.0 | Python data sources | there are no formats; `read_table` reads by `mapInArrow` |

PySpark 3.5 is the oldest that runs anything.
"""

from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import array, col, lit, pmod
from pyspark.sql.functions import hash as hash_of
from pyspark.sql.functions import min as least
from pyspark.sql.pandas import types as arrow_types
from pyspark.sql.types import StructType

from sleeper.errors import InvalidRequestError

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
        InputPartition,
        WriterCommitMessage,
    )
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
else:

    def _stand_in(name: str) -> type:
        """Returns a base for classes that no session uses."""
        return type(name, (), {})

    try:
        from pyspark.sql import datasource
    except ImportError:
        datasource = None

        class DataSource:
            """Spark's own, for the schema of `read_table`."""

            def __init__(self, options: dict[str, str]) -> None:
                self.options = options

        DataSourceArrowWriter = _stand_in("DataSourceArrowWriter")
        DataSourceReader = _stand_in("DataSourceReader")
        DataSourceStreamArrowWriter = _stand_in("DataSourceStreamArrowWriter")
        DataSourceStreamReader = _stand_in("DataSourceStreamReader")
        WriterCommitMessage = _stand_in("WriterCommitMessage")

        class InputPartition:
            """Spark's own, for `read_table`."""

            def __init__(self, value: object) -> None:
                self.value = value

    else:
        from pyspark.sql.datasource import (
            DataSource,
            DataSourceArrowWriter,
            DataSourceReader,
            DataSourceStreamReader,
            InputPartition,
            WriterCommitMessage,
        )

        try:
            from pyspark.sql.datasource import DataSourceStreamArrowWriter
        except ImportError:

            class DataSourceStreamArrowWriter(
                datasource.DataSourceStreamWriter, DataSourceArrowWriter
            ):
                """Spark passes Arrow batches to any writer that is an Arrow writer of batches."""

    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxFiles,
            SupportsTriggerAvailableNow,
        )
    except ImportError:
        # Spark asks for no limits, so no method is called with one.
        ReadAllAvailable = _stand_in("ReadAllAvailable")
        ReadLimit = _stand_in("ReadLimit")
        ReadMaxFiles = _stand_in("ReadMaxFiles")
        SupportsTriggerAvailableNow = _stand_in("SupportsTriggerAvailableNow")

__all__ = [
    "DataSource",
    "DataSourceArrowWriter",
    "DataSourceReader",
    "DataSourceStreamArrowWriter",
    "DataSourceStreamReader",
    "InputPartition",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxFiles",
    "SupportsTriggerAvailableNow",
    "WriterCommitMessage",
    "assign_by_hash",
    "assign_by_number",
    "check_data_sources",
    "has_data_sources",
    "register_source",
    "to_utc_arrow_schema",
]

_EXISTS = "DATA_SOURCE_ALREADY_EXISTS"
_NUMBERS_PER_TASK = 20
# No column of a user has this name.
_PLACE = "~place of a row"


def has_data_sources() -> bool:
    """Returns whether this PySpark has Python data sources."""
    return hasattr(DataSource, "streamReader")


def check_data_sources(purpose: str) -> None:
    """Raises InvalidRequestError if this PySpark has no Python data sources."""
    if not has_data_sources():
        raise InvalidRequestError(
            f"{purpose}: PySpark {pyspark.__version__} has no Python data sources (expected "
            "PySpark 4.0 or newer; read_table and write_table need none)"
        )


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Registers a format, unless this session cannot replace the one that it found itself."""
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if _EXISTS not in str(error):
            raise


def to_utc_arrow_schema(schema: StructType) -> pa.Schema:
    """Returns the Arrow schema of a DataFrame schema, with times in UTC."""
    try:
        return arrow_types.to_arrow_schema(schema, timezone="UTC")
    except TypeError:
        return arrow_types.to_arrow_schema(schema)


def assign_by_number(frame: DataFrame, count: int, column: str) -> DataFrame:
    """Moves rows to the partition of the number in the column, from 0 to below the count."""
    if hasattr(frame, "repartitionById"):
        return frame.repartitionById(count, col(column))
    return assign_by_hash(frame, count, column)


def assign_by_hash(frame: DataFrame, count: int, column: str) -> DataFrame:
    """Moves rows likewise on versions that partition only by hash.

    Each number gets the first integer from 0 whose hash falls into its partition, after about
    `count * ln(count)` integers.
    """
    session = frame.sparkSession
    positions: dict[int, int] = {}
    start = 0
    while len(positions) < count:
        end = start + count * _NUMBERS_PER_TASK
        numbers = session.range(start, end).select(col("id").cast("int"))
        hashed = numbers.withColumn(_PLACE, pmod(hash_of("id"), lit(count)))
        for row in hashed.groupBy(_PLACE).agg(least("id").alias("id")).collect():
            positions.setdefault(row[_PLACE], row["id"])
        start = end
    number = array(*[lit(positions[task]) for task in range(count)])[col(column)]
    placed = frame.withColumn(_PLACE, number).repartition(count, col(_PLACE))
    return placed.drop(_PLACE)
