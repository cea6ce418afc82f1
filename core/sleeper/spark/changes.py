"""The Spark data source of the format `sleeper-changes`: the change feed of a table as a stream.

A micro-batch has all changes of some transactions. Its rows have no order, because executors read
them in parallel, so a consumer orders them by `number`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sleeper.datafiles.arrow import with_text
from sleeper.errors import InvalidRequestError
from sleeper.instance import OpenTable
from sleeper.query.changes.parts import ChangeFollower, read_changes_part
from sleeper.query.changes.read import feed_schema
from sleeper.query.service import read_schema
from sleeper.schema.model import Schema
from sleeper.spark.data_source import STREAM_OWNER, SleeperStreamReader
from sleeper.spark.options import (
    CHANGES_OPTIONS,
    Options,
    cached_instance,
    cast_batches,
    read_instance,
    read_partition_bytes,
    read_table_name,
    read_transactions_per_trigger,
    to_arrow,
)
from sleeper.spark.versions import DataSource, InputPartition


class SleeperChangesReader(SleeperStreamReader):
    """A streaming read of changes. Offsets are those of a stream of rows."""

    _known_options = CHANGES_OPTIONS
    _only_adds = False

    def __init__(self, options: Options, declared: StructType) -> None:
        super().__init__(options, declared)
        self._schema = _read_schema(options)
        if declared != to_changes(self._schema):
            raise InvalidRequestError(
                f"the declared schema is {declared.simpleString()} (expected that of the changes, "
                f"{to_changes(self._schema).simpleString()})"
            )

    def _read_limit(self, options: Options) -> int:
        return read_transactions_per_trigger(options)

    def _make_follower(self, table: OpenTable, name: str | None) -> ChangeFollower:
        return ChangeFollower(table, name, STREAM_OWNER)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """Returns a partition for each group of small changes, and for each large one."""
        follower = self._open_follower()
        assert isinstance(follower, ChangeFollower)
        parts = follower.change_parts(
            self._version(start),
            self._version(end),
            self._schema,
            read_partition_bytes(self._options),
        )
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the changes as rows of the feed."""
        if partition.value is not None:
            changes = read_changes_part(self._place.open(), partition.value)
            rows = (change.to_arrow() for change in changes)
            yield from cast_batches(rows, to_arrow(self._declared))


class SleeperChangesSource(DataSource):
    """The changes of a table, by the options `instance` and `table`. A stream only."""

    @classmethod
    def name(cls) -> str:
        return "sleeper-changes"

    def schema(self) -> StructType:
        """Returns the schema of the changes of the table."""
        return to_changes(_read_schema(self.options))

    def streamReader(self, schema: StructType) -> SleeperChangesReader:
        return SleeperChangesReader(self.options, schema)


def to_changes(schema: Schema) -> StructType:
    """Returns the DataFrame schema of the changes of a table."""
    return from_arrow_schema(with_text(feed_schema(schema)))


def _read_schema(options: Options) -> Schema:
    return read_schema(cached_instance(read_instance(options)), read_table_name(options))
