"""The format `sleeper`: what Spark calls to read and write tables."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sleeper.query.distributed.read import plan_table_read, read_table_part
from sleeper.query.service import read_schema
from sleeper.spark import options as asked
from sleeper.spark.opened import opened
from sleeper.spark.stream_reader import SleeperStreamReader
from sleeper.spark.types import arrow_of_spark, columns_of, exactly, spark_schema
from sleeper.spark.writer import SleeperStreamWriter, SleeperWriter

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
        schema = read_schema(instance, name)
        query = replace(asked.query_asked(options, schema), columns=columns_of(declared, schema))
        self._read, self._parts = plan_table_read(
            instance.table(name), query, _OWNER, asked.partition_bytes(options)
        )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_parts": []}

    def partitions(self) -> list[InputPartition]:
        """One for each leaf, or for a few small ones."""
        return [InputPartition(part) for part in self._parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the leaves, in key order."""
        # Where there is no partition, Spark makes one with nothing in it.
        if partition.value is not None:
            rows = read_table_part(opened(self._where), self._read, partition.value)
            yield from exactly(rows, arrow_of_spark(self._declared))


_NAME = "sleeper"


def register(spark: SparkSession) -> None:
    """Makes the format `sleeper` known to the session."""
    spark.dataSource.register(SleeperDataSource)


class SleeperDataSource(DataSource):
    """A table of an instance, by the options `instance` and `table`.

    Filters are not pushed down: while PySpark keeps those that were pushed once in a loaded
    DataFrame, others of it give wrong answers. Keys and ranges are options.
    """

    @classmethod
    def name(cls) -> str:
        return _NAME

    def schema(self) -> StructType:
        """The table's fields, or of those the columns asked for."""
        instance = opened(asked.instance_named(self.options))
        schema = read_schema(instance, asked.table_named(self.options))
        return spark_schema(schema, asked.columns_asked(self.options))

    def reader(self, schema: StructType) -> SleeperReader:
        return SleeperReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> SleeperWriter:
        return SleeperWriter(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> SleeperStreamReader:
        return SleeperStreamReader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> SleeperStreamWriter:
        return SleeperStreamWriter(self.options, schema, overwrite)
