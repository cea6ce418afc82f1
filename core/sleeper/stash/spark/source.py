"""The Spark data source of the format `sleeper-stash`: a table of a stash, without its instance.

The driver chooses the stash once and plans a partition for each file, so all reads of a DataFrame
return the same rows, however many newer stashes are completed meanwhile.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from sleeper.datafiles.arrow import with_text
from sleeper.errors import InvalidRequestError
from sleeper.retries import retry_as_job
from sleeper.spark.options import (
    Options,
    cast_batches,
    check_options,
    read_columns,
    read_table_name,
    to_arrow,
)
from sleeper.spark.session import run_this_python
from sleeper.spark.versions import (
    DataSource,
    DataSourceReader,
    InputPartition,
    check_data_sources,
    register_source,
)
from sleeper.stash.destination import parse_destination
from sleeper.stash.reader import Stash

_NAME = "sleeper-stash"
_OPTIONS = ("destination", "table", "at", "columns")


def read_stash(
    spark: SparkSession, destination: str, table: str, at: str | None = None
) -> DataFrame:
    """Returns a table of a stash as a DataFrame, with a partition for each file.

    The columns are the fields of the table and those of a stash, such as `~id`. The stash is the
    latest one at the call, or that of `at`, a stash time or the name of a stash; the DataFrame
    never changes to another one. Executors read the files with their own credentials.

    Raises `NotFoundError` if there is no complete stash, or if it does not have the table, and
    `InvalidRequestError` if this PySpark has no Python data sources.
    """
    check_data_sources("the format sleeper-stash")
    run_this_python(spark)
    register_source(spark, SleeperStashSource)
    stash = Stash.open(destination)
    name = stash.lock(at)
    _document_type(stash, table)
    options = {"destination": parse_destination(destination), "table": table, "at": name}
    return spark.read.format(_NAME).options(**options).load()


class SleeperStashReader(DataSourceReader):
    """A read of one table. Planned when Spark creates it, and sent to executors without splits."""

    def __init__(self, options: Options, declared: StructType) -> None:
        self._destination, stash = _open(options)
        self._table = read_table_name(options)
        self._declared = declared
        _check_columns(declared, _document_type(stash, self._table))
        self._splits = stash.splits(self._table)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_splits": []}

    def partitions(self) -> list[InputPartition]:
        """Returns a partition for each split."""
        return [InputPartition(split) for split in self._splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the documents of a split."""
        # Spark adds an empty partition to a read without any.
        if partition.value is not None:
            retry_as_job()
            with Stash.open(self._destination).split(self._table, partition.value) as rows:
                batches = (batch.select(self._declared.fieldNames()) for batch in rows.batches())
                yield from cast_batches(batches, to_arrow(self._declared))


class SleeperStashSource(DataSource):
    """A table of a stash, by the options `destination` and `table`. Batch reads only."""

    @classmethod
    def name(cls) -> str:
        return _NAME

    def schema(self) -> StructType:
        """Returns the schema of the documents, or of the requested columns."""
        check_options(self.options, _OPTIONS)
        _, stash = _open(self.options)
        whole = _document_type(stash, read_table_name(self.options))
        names = read_columns(self.options) or whole.fieldNames()
        return StructType([_find(whole, name) for name in names])

    def reader(self, schema: StructType) -> SleeperStashReader:
        return SleeperStashReader(self.options, schema)


def _open(options: Options) -> tuple[str, Stash]:
    """Returns the destination, for processes with other working folders, and its locked stash."""
    named = options.get("destination")
    if not named:
        raise InvalidRequestError("option 'destination' is missing: a folder or a URL of stashes")
    destination = parse_destination(named)
    stash = Stash.open(destination)
    stash.lock(options.get("at"))
    return destination, stash


def _document_type(stash: Stash, table: str) -> StructType:
    """Returns the DataFrame schema of a table's documents. NotFoundError if it does not exist."""
    return from_arrow_schema(with_text(stash.scan(table).schema))


def _find(whole: StructType, name: str) -> StructField:
    if name not in whole.fieldNames():
        raise InvalidRequestError(
            f"the stash has no field {name!r} (expected some of {', '.join(whole.fieldNames())})"
        )
    return whole[name]


def _check_columns(declared: StructType, whole: StructType) -> None:
    """InvalidRequestError if the stash lacks a declared column, or has one of another type."""
    for field in declared.fields:
        expected = _find(whole, field.name).dataType.simpleString()
        if field.dataType.simpleString() != expected:
            raise InvalidRequestError(
                f"field {field.name!r} is declared as {field.dataType.simpleString()} (expected "
                f"{expected})"
            )
