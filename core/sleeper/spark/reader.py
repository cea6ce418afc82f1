"""`spark.read.format("sleeper")`: a table at one version, leaves as Spark partitions."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sleeper.spark import options as asked
from sleeper.spark.opened import opened
from sleeper.spark.types import arrow_of_spark, columns_of, exactly
from sleeper.wiring.query import schema_of
from sleeper.wiring.query_pieces import plan_scan, read_scan

# All DataFrames that were loaded from a version share its hold.
_OWNER = "spark"


class SleeperReader(DataSourceReader):
    """Made on the driver, where it plans; sent to executors without the plan's pieces.

    Spark makes one for a DataFrame that was loaded and keeps it: such a DataFrame stays at
    its version. It pickles the reader before it asks for partitions, so planning comes first.
    """

    def __init__(self, options: asked.Options, declared: StructType) -> None:
        asked.check_known(options, asked.READ_OPTIONS)
        self._where = asked.instance_named(options)
        self._declared = declared
        instance, name = opened(self._where), asked.table_named(options)
        schema = schema_of(instance, name)
        query = replace(asked.query_asked(options, schema), columns=columns_of(declared, schema))
        self._scan, self._pieces = plan_scan(
            instance.table(name), query, _OWNER, asked.partition_bytes(options)
        )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_pieces": []}

    def partitions(self) -> list[InputPartition]:
        """One for each leaf, or for a few small ones."""
        return [InputPartition(piece) for piece in self._pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the leaves, in key order."""
        # Where there is no partition, Spark makes one with nothing in it.
        if partition.value is not None:
            rows = read_scan(opened(self._where), self._scan, partition.value)
            yield from exactly(rows, arrow_of_spark(self._declared))
