"""The Spark data source of the format `sleeper`: batch reads, writes and streams.

A stream's offset is a transaction number and the table's id, because another table may get its
name. A micro-batch is the rows that ingests and imports added after one offset, up to the next.
Repeated reads of a micro-batch return the same rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from sleeper.errors import InvalidRequestError
from sleeper.instance import OpenTable
from sleeper.query.distributed.follow import TableFollower
from sleeper.query.distributed.plan import Part
from sleeper.query.distributed.read import TableRead, plan_table_read, read_table_part
from sleeper.query.request import Query
from sleeper.query.service import read_schema
from sleeper.spark.options import (
    FOLLOW_OPTIONS,
    READ_OPTIONS,
    InstancePlace,
    Options,
    cached_instance,
    cast_batches,
    check_columns,
    check_options,
    read_as_of,
    read_columns,
    read_files_per_trigger,
    read_includes_deleted,
    read_instance,
    read_partition_bytes,
    read_query,
    read_starting_version,
    read_table_name,
    to_arrow,
    to_spark,
)
from sleeper.spark.session import run_this_python
from sleeper.spark.variants import reads_variants
from sleeper.spark.versions import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
    check_data_sources,
    register_source,
)
from sleeper.spark.writer import SleeperStreamWriter, SleeperWriter
from sleeper.systems import load, systems

# All DataFrames of a version share one hold.
READ_OWNER = "spark"
STREAM_OWNER = "spark stream"


@dataclass(frozen=True)
class PartReader:
    """Reads parts of a planned read in executors, as rows of the declared schema."""

    place: InstancePlace
    planned: TableRead
    declared: StructType

    def read(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yields the rows of the leaves, in key order."""
        rows = read_table_part(self.place.open(), self.planned, part)
        yield from cast_batches(rows, to_arrow(self.declared))


class SleeperReader(DataSourceReader):
    """A batch read, planned on the driver and sent to executors without its parts.

    Spark creates one for a loaded DataFrame and keeps it, so the DataFrame keeps its version.
    Spark pickles the reader before it requests partitions, so the constructor plans.
    """

    def __init__(self, options: Options, declared: StructType) -> None:
        check_options(options, READ_OPTIONS)
        place = InstancePlace.plan(read_instance(options))
        instance, name = cached_instance(place.where), read_table_name(options)
        schema = read_schema(instance, name, read_as_of(options))
        query = replace(read_query(options, schema), columns=check_columns(declared, schema))
        planned, self.parts = plan_table_read(
            instance.table(name), query, READ_OWNER, read_partition_bytes(options)
        )
        self.part_reader = PartReader(place, planned, declared)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"parts": []}

    def partitions(self) -> list[InputPartition]:
        """Returns a partition for each leaf, group of small leaves, or part of a large one."""
        return [InputPartition(part) for part in self.parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of the leaves, in key order."""
        # Spark adds an empty partition to a read without any.
        if partition.value is not None:
            yield from self.part_reader.read(partition.value)


_VERSION = "version"
_TABLE = "table"

Offset = Mapping[str, Any]


class SleeperStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read: it plans on the driver, and its copies read on executors."""

    _known_options: tuple[str, ...] = FOLLOW_OPTIONS
    _only_adds = True

    def __init__(self, options: Options, declared: StructType) -> None:
        check_options(options, self._known_options)
        self._options = options
        self._place = InstancePlace.plan(read_instance(options))
        self._name = read_table_name(options)
        self._files_max = self._read_limit(options)
        self._declared = declared
        self._query: Query | None = None
        self._follower: TableFollower | None = None
        self._last: int | None = None

    def _read_limit(self, options: Options) -> int:
        return read_files_per_trigger(options)

    def initialOffset(self) -> dict[str, Any]:
        """Returns the start of a stream without a checkpoint."""
        start = read_starting_version(self._options)
        follower = self._open_follower()
        version = follower.begin(follower.newest if start is None else start)
        if self._only_adds and not read_includes_deleted(self._options):
            self._check_removals(version, follower.last_removal(version))
        return self._offset(version)

    def _check_removals(self, version: int, removal: int | None) -> None:
        """Raises InvalidRequestError if the stream would return rows that the table lost."""
        if removal is not None:
            raise InvalidRequestError(
                f"the stream of table {self._name!r} would begin after transaction {version}, and "
                "return rows that were deleted or replaced since then, up to transaction "
                f"{removal} (expected: read the table with asOf={removal}, and stream with "
                f"startingVersion={removal}; or the format sleeper-changes, which streams deletes "
                "too; or the option deletedRows=include)"
            )

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self._files_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """Ends the stream at the newest version."""
        self._last = self._open_follower().newest

    def latestOffset(
        self, start: Offset | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Returns the end of the next micro-batch; `start` if nothing is new."""
        if start is None:
            return self._offset(self._open_follower().newest)
        files_max = None if isinstance(limit, ReadAllAvailable) else self._files_max
        version = self._version(start)
        return self._offset(self._open_follower().next_version(version, files_max, self._last))

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Returns a partition for each new file, or group of small files."""
        parts = self._open_follower().parts(
            self._version(start),
            self._version(end),
            self._read_query(),
            read_partition_bytes(self._options),
        )
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the ingested rows, in key order within each file."""
        if partition.value is not None:
            rows = read_table_part(self._place.open(), *partition.value)
            yield from cast_batches(rows, to_arrow(self._declared))

    def commit(self, end: Offset) -> None:
        """Records that Spark needs no rows before the offset any more."""
        self._open_follower().advance(self._version(end))

    def stop(self) -> None:
        if self._follower is not None:
            self._follower.close()

    def _open_follower(self) -> TableFollower:
        if self._follower is None:
            table = cached_instance(self._place.where).table(self._name)
            name = self._options.get("follower") or None
            self._follower = self._make_follower(table, name)
        return self._follower

    def _make_follower(self, table: OpenTable, name: str | None) -> TableFollower:
        with table.state.reading() as state:
            if state.is_snapshot_table:
                raise InvalidRequestError(
                    f"table {table.ref.name!r} is a snapshot table, whose rows are replaced, and a "
                    "stream of rows only adds (expected the format sleeper-changes, or a batch "
                    "read)"
                )
        return TableFollower(table, name, STREAM_OWNER)

    def _offset(self, version: int) -> dict[str, Any]:
        return {_VERSION: version, _TABLE: self._open_follower().table_id}

    def _version(self, offset: Offset) -> int:
        own = self._open_follower().table_id
        if offset[_TABLE] != own:
            raise InvalidRequestError(
                f"the checkpoint belongs to table {offset[_TABLE]}, but table {self._name!r} is "
                f"now {own}: it was deleted and created again, so start with a new checkpoint"
            )
        return int(offset[_VERSION])

    def _read_query(self) -> Query:
        if self._query is None:
            schema = read_schema(cached_instance(self._place.where), self._name)
            query = read_query(self._options, schema)
            self._query = replace(query, columns=check_columns(self._declared, schema))
        return self._query


_NAME = "sleeper"


def register(spark: SparkSession) -> None:
    """Registers the formats `sleeper`, `sleeper-changes` and those of systems in the session.

    Spark registers them itself if the package is installed in the Python of its workers.
    InvalidRequestError if this PySpark has no Python data sources.
    """
    from sleeper.spark.changes import SleeperChangesSource

    check_data_sources("the format sleeper")
    run_this_python(spark)
    others = (load(source) for system in systems() for source in system.spark_sources)
    for source in (SleeperDataSource, SleeperChangesSource, *others):
        register_source(spark, source)


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
        version = read_as_of(self.options)
        schema = read_schema(instance, read_table_name(self.options), version)
        return to_spark(schema, read_columns(self.options), reads_variants(self.options))

    def reader(self, schema: StructType) -> SleeperReader:
        return SleeperReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> SleeperWriter:
        return SleeperWriter(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> SleeperStreamReader:
        return SleeperStreamReader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> SleeperStreamWriter:
        return SleeperStreamWriter(self.options, schema, overwrite)
