"""What older versions of PySpark lack, and what stands in for it.

| before | lacks | so that |
|---|---|---|
| 4.2 | limits of micro-batches | a micro-batch has everything up to the newest version |
| 4.1 | writes of streams as Arrow batches | `foreachBatch` writes a stream, by batch writes |
| 4.1 | `DataFrame.repartitionById` | `enrich` has no `partitions` |
"""

from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import DataFrame, datasource

from sleeper.errors import InvalidRequestError

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxFiles,
            SupportsTriggerAvailableNow,
        )
    except ModuleNotFoundError:
        # Spark asks for no limits, so no method is called with one.
        ReadAllAvailable = ReadLimit = ReadMaxFiles = SupportsTriggerAvailableNow = object
    DataSourceStreamArrowWriter = getattr(
        datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter
    )

__all__ = [
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxFiles",
    "SupportsTriggerAvailableNow",
    "check_partitions_by_number",
    "check_stream_writes",
]


def check_stream_writes() -> None:
    """Raises InvalidRequestError if this PySpark cannot write streams as Arrow batches."""
    if DataSourceStreamArrowWriter is datasource.DataSourceStreamWriter:
        raise InvalidRequestError(
            f"PySpark {pyspark.__version__} cannot write a stream to the format sleeper (expected "
            "4.1 or newer, or foreachBatch with batch writes, each with a jobId)"
        )


def check_partitions_by_number() -> None:
    """Raises InvalidRequestError if this PySpark has no partitions by number."""
    if not hasattr(DataFrame, "repartitionById"):
        raise InvalidRequestError(
            f"partitions: PySpark {pyspark.__version__} cannot divide a DataFrame by number "
            "(expected 4.1 or newer)"
        )
