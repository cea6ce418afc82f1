"""`spark.readStream.format("sleeper")`: what is ingested, as it comes, by version.

The offset is the number of a transaction of a table, which is named by its id: a name may be
given to another table. A micro-batch is what ingests and imports added after one offset up to
the next; compactions add nothing. It is the same whenever it is read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from sleeper.errors import InvalidRequestError
from sleeper.query.distributed.follow import TableFollower
from sleeper.query.distributed.read import read_table_part
from sleeper.query.request import Query
from sleeper.query.service import read_schema
from sleeper.spark import options as asked
from sleeper.spark.opened import opened
from sleeper.spark.types import arrow_of_spark, columns_of, exactly

_VERSION = "version"
_TABLE = "table"
_OWNER = "spark stream"

Offset = Mapping[str, Any]


class SleeperStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver as long as its query; copies of it read on executors."""

    def __init__(self, options: asked.Options, declared: StructType) -> None:
        asked.check_known(options, asked.FOLLOW_OPTIONS)
        self._options = options
        self._where = asked.instance_named(options)
        self._name = asked.table_named(options)
        self._files_max = asked.files_per_trigger(options)
        self._declared = declared
        self._query: Query | None = None
        self._follower: TableFollower | None = None
        self._last: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where a stream starts that has no checkpoint yet."""
        wanted = asked.starting_version(self._options)
        follower = self._following()
        return self._offset(follower.begin(follower.newest if wanted is None else wanted))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self._files_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """What comes later is for another run."""
        self._last = self._following().newest

    def latestOffset(self, start: Offset, limit: ReadLimit) -> dict[str, Any]:
        """How far the next micro-batch goes; `start` if nothing came."""
        files_max = None if isinstance(limit, ReadAllAvailable) else self._files_max
        version = self._version(start)
        return self._offset(self._following().next_version(version, files_max, self._last))

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The files that came in between; a few small ones together."""
        parts = self._following().parts(
            self._version(start),
            self._version(end),
            self._asked(),
            asked.partition_bytes(self._options),
        )
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows as they were ingested, each file's in key order."""
        if partition.value is not None:
            rows = read_table_part(opened(self._where), *partition.value)
            yield from exactly(rows, arrow_of_spark(self._declared))

    def commit(self, end: Offset) -> None:
        """Spark does not come back to what is before the offset."""
        self._following().advance(self._version(end))

    def stop(self) -> None:
        if self._follower is not None:
            self._follower.close()

    def _following(self) -> TableFollower:
        if self._follower is None:
            table = opened(self._where).table(self._name)
            name = self._options.get("follower") or None
            self._follower = TableFollower(table, name, _OWNER)
        return self._follower

    def _offset(self, version: int) -> dict[str, Any]:
        return {_VERSION: version, _TABLE: self._following().table_id}

    def _version(self, offset: Offset) -> int:
        own = self._following().table_id
        if offset[_TABLE] != own:
            raise InvalidRequestError(
                f"the checkpoint is of table {offset[_TABLE]}, and table {self._name!r} is {own} "
                "now: it was deleted and made again, so begin with a new checkpoint"
            )
        return int(offset[_VERSION])

    def _asked(self) -> Query:
        if self._query is None:
            schema = read_schema(opened(self._where), self._name)
            query = asked.query_asked(self._options, schema)
            self._query = replace(query, columns=columns_of(self._declared, schema))
        return self._query
