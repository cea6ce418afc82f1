"""The Spark data source of the format `sleeper`."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sleeper.query.distributed.read import plan_table_read, read_table_part
from sleeper.query.service import read_schema
from sleeper.spark.options import (
    READ_OPTIONS,
    Options,
    cached_instance,
    cast_batches,
    check_columns,
    check_options,
    read_columns,
    read_instance,
    read_partition_bytes,
    read_query,
    read_table_name,
    to_arrow,
    to_spark,
)
from sleeper.spark.stream_reader import SleeperStreamReader
from sleeper.spark.writer import SleeperStreamWriter, SleeperWriter

# All DataFrames of a version share one hold.
_OWNER = "spark"


class SleeperReader(DataSourceReader):
    """A batch read, planned on the driver and sent to executors without its parts.

    Spark creates one for a loaded DataFrame and keeps it, so the DataFrame keeps its version.
    Spark pickles the reader before it requests partitions, so the constructor plans.
    """

    def __init__(self, options: Options, declared: StructType) -> None:
        check_options(options, READ_OPTIONS)
        self._where = read_instance(options)
        self._declared = declared
        instance, name = cached_instance(self._where), read_table_name(options)
        schema = read_schema(instance, name)
        query = replace(read_query(options, schema), columns=check_columns(declared, schema))
        self._read, self._parts = plan_table_read(
            instance.table(name), query, _OWNER, read_partition_bytes(options)
        )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_parts": []}

    def partitions(self) -> list[InputPartition]:
        """Returns a partition for each leaf, or group of small leaves."""
        return [InputPartition(part) for part in self._parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of the leaves, in key order."""
        # Spark adds an empty partition to a read without any.
        if partition.value is not None:
            rows = read_table_part(cached_instance(self._where), self._read, partition.value)
            yield from cast_batches(rows, to_arrow(self._declared))


_NAME = "sleeper"


def register(spark: SparkSession) -> None:
    """Registers the format `sleeper` in the session."""
    spark.dataSource.register(SleeperDataSource)


class SleeperDataSource(DataSource):
    """A table of an instance, by the options `instance` and `table`.

    Filters are not pushed down: PySpark keeps pushed filters in a loaded DataFrame, so that
    other DataFrames derived from it would give wrong results. Keys and ranges are options.
    """

    @classmethod
    def name(cls) -> str:
        return _NAME

    def schema(self) -> StructType:
        """Returns the schema of the table, or of the requested columns."""
        instance = cached_instance(read_instance(self.options))
        schema = read_schema(instance, read_table_name(self.options))
        return to_spark(schema, read_columns(self.options))

    def reader(self, schema: StructType) -> SleeperReader:
        return SleeperReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> SleeperWriter:
        return SleeperWriter(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> SleeperStreamReader:
        return SleeperStreamReader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> SleeperStreamWriter:
        return SleeperStreamWriter(self.options, schema, overwrite)
