"""The format `sleeper`: what Spark calls to read and write tables."""

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from sleeper.spark import options as asked
from sleeper.spark.opened import opened
from sleeper.spark.reader import SleeperReader
from sleeper.spark.stream_reader import SleeperStreamReader
from sleeper.spark.types import spark_schema
from sleeper.spark.writer import SleeperStreamWriter, SleeperWriter
from sleeper.wiring.query import schema_of

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
        schema = schema_of(instance, asked.table_named(self.options))
        return spark_schema(schema, asked.columns_asked(self.options))

    def reader(self, schema: StructType) -> SleeperReader:
        return SleeperReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> SleeperWriter:
        return SleeperWriter(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> SleeperStreamReader:
        return SleeperStreamReader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> SleeperStreamWriter:
        return SleeperStreamWriter(self.options, schema, overwrite)
