"""A table's state at one version."""

import sqlite3
from functools import cached_property

from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.schema.json import schema_from_json
from sleeper.schema.model import Schema
from sleeper.statestore.reading.collection_queries import CollectionQueries
from sleeper.statestore.reading.file_queries import FileQueries
from sleeper.statestore.reading.job_queries import JobQueries
from sleeper.statestore.reading.partition_queries import PartitionQueries
from sleeper.statestore.reading.version_reader import VersionReader


class TableState:
    """Valid within `StateStore.reading` only.

    `version` is what the queries of `partitions` and `files` look at; `number` the newest
    transaction; `horizon` the oldest version that can be read; `time_ms` the time of the
    newest entry. `jobs` and `collection` answer of the newest state.

    InvalidRequestError if the version is below the horizon or not reached yet;
    NotFoundError if the table was not initialised.
    """

    def __init__(self, connection: sqlite3.Connection, version: int | None = None) -> None:
        self.number, self.time_ms, self.horizon, dimensions, self.orphan_age_ms = (
            connection.execute(
                "SELECT number, time, horizon, dimensions, orphan_age FROM position"
            ).fetchone()
        )
        if dimensions == 0:
            raise NotFoundError("the table has no state: it was not initialised")
        self.oldest_version = max(self.horizon, 1)
        self.version = self.number if version is None else version
        if self.version < self.oldest_version:
            raise InvalidRequestError(
                f"version {version} cannot be read any more: the oldest kept is "
                f"{self.oldest_version}"
            )
        if self.version > self.number:
            raise InvalidRequestError(
                f"version {version} is not reached: the newest is {self.number}"
            )
        self._reader = VersionReader(connection, self.version, dimensions)
        self.partitions = PartitionQueries(self._reader)
        self.files = FileQueries(self._reader)
        self.jobs = JobQueries(self._reader)
        self.collection = CollectionQueries(self._reader)

    def moment(self, clock_ms: int) -> int:
        """The time of what is done now: the clock's, yet never before the newest entry.

        A clock that was ahead and is set back must not make every run, lease and hold seem
        to be of long ago.
        """
        newest_ms: int = self.time_ms
        return max(clock_ms, newest_ms)

    @cached_property
    def schema_json(self) -> str:
        """The schema as it was declared."""
        return str(self._newest("schema_versions"))

    @cached_property
    def schema(self) -> Schema:
        return schema_from_json(self.schema_json)

    @cached_property
    def processing_json(self) -> str:
        """Filters, aggregations and iterators, as the table was made with."""
        return str(self._newest("processing_versions"))

    def _newest(self, table: str) -> str:
        row = self._reader.row(f"SELECT json FROM {table} ORDER BY version DESC LIMIT 1")
        return str(row[0])
