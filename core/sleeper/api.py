"""The Python API: `import sleeper`, open an instance, write and query tables.

```python
import sleeper

with sleeper.open_instance("my-instance") as instance:
    table = instance.table("flights")
    table.ingest(frame)                              # Arrow, pandas, Polars, or batches
    table.query(keys=[["N14228"]]).to_pandas()       # also ranges, regions, columns, as_of
    instance.sql("SELECT count(*) FROM flights").to_arrow()
```

Rows are Arrow data: one column per field of the table's schema, in schema order, with exactly
the types of the schema. Every error is a subclass of `sleeper.errors.SleeperError`.
`docs/python-reference.md` is generated from the docstrings of this module.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from sleeper import opening
from sleeper.admin import tables as table_admin
from sleeper.admin.clone import clone_table
from sleeper.admin.schema import SchemaChange, change_schema
from sleeper.admin.versions import VersionChange, reinitialise_table, restore_table, undo_job
from sleeper.backup.objects import OnProgress
from sleeper.backup.place import open_place_to_read
from sleeper.backup.restore import RestoreResult, instance_values, restore
from sleeper.backup.run import BackupResult, back_up
from sleeper.datafiles.arrow import arrow_schema
from sleeper.deletion.keys import delete_key_rows, delete_keys_from, delete_rows
from sleeper.deletion.service import DeleteResult
from sleeper.errors import InvalidRequestError
from sleeper.ingest.run import IngestResult
from sleeper.ingest.service import annotate_errors, ingest_paths, ingest_rows
from sleeper.instance import Instance as Ports
from sleeper.jobs.ingest_job import new_job_id
from sleeper.opening import open_instance as open_ports
from sleeper.partitions.json import region_from_json
from sleeper.partitions.region import Region
from sleeper.processing.field_changes import (
    AddField,
    DropField,
    FieldChange,
    OrderFields,
    RenameField,
    WidenField,
)
from sleeper.processing.model import AggregationOp, Processing
from sleeper.processing.text import iterator_call, parse_aggregations, parse_filters
from sleeper.purging.report import PurgeReport
from sleeper.purging.service import purge_table
from sleeper.query.changes.read import Change, check_columns, feed_schema
from sleeper.query.changes.reader import ChangeReader
from sleeper.query.changes.service import make_changes_request, open_changes
from sleeper.query.request import Query, make_key_regions, make_range_region
from sleeper.query.result import QueryResult
from sleeper.query.service import explain_statement, open_query, open_sql, read_schema
from sleeper.query.sql.explain import SqlExplanation
from sleeper.query.sql.tables import parse_as_of
from sleeper.schema.model import (
    Default,
    Field,
    FieldType,
    Schema,
    schema_from_json,
    schema_to_json,
)
from sleeper.schema.type_text import parse_type
from sleeper.statestore.reading.history_queries import HistoryEntry
from sleeper.statestore.version import parse_version
from sleeper.workers.runner import RunStatus, run_instance

if TYPE_CHECKING:
    import pandas
    import polars

Rows = Any
"""Rows to ingest: a PyArrow table, record batch or reader, an iterable of record batches or
tables, an object with the Arrow C stream interface (Polars, DuckDB), a pandas data frame, or the
path or paths of Parquet, CSV or JSON lines files."""

AsOf = int | datetime | str
"""A version: a transaction number, a time, or ISO 8601 text or an age such as `2h`."""


def open_instance(where: str | os.PathLike[str] | None = None) -> "Instance":
    """Opens an existing instance.

    `where` is the folder of a local instance, or `aws:<instance id>`. The default is the
    environment variable `SLEEPER_INSTANCE`.

    Raises `InvalidRequestError` if no instance is named, `NotFoundError` if the instance does
    not exist, and `DataError` if a newer version of Sleeper wrote its database.
    """
    return Instance(open_ports(where))


def create_instance(
    where: str | os.PathLike[str], properties: Mapping[str, str] | None = None
) -> "Instance":
    """Creates a local instance in a new or empty folder, and opens it.

    `properties` are instance properties by name. The instance's id is derived from the name of
    the folder. An instance on AWS is created by a deployment.

    Raises `InvalidRequestError` if the folder is not empty, for an unknown property or a value
    that is not valid, and for an `aws:` name.
    """
    opening.create_instance(where, None, properties)
    return open_instance(where)


def restore_instance(
    source: str | os.PathLike[str],
    where: str | os.PathLike[str] | None = None,
    at: str | None = None,
    tables: Sequence[str] = (),
    on_progress: OnProgress = lambda _done, _total: None,
) -> RestoreResult:
    """Restores tables from a backup into a new folder, or into an instance without these tables.

    `source` is the folder or `s3://bucket/prefix` of the backups, and `where` the instance as for
    `open_instance`. A folder that is no instance becomes one, with the id and the properties of
    the backup. `at` is the id of a backup or its beginning; the default is the newest. `tables`
    are names; the default is all tables. The result has `id` of the backup, and for each of
    `tables` its `name`, `number`, `files`, `rows`, `bytes` and `faults`. `on_progress` receives
    the number of bytes that were copied or checked, and the total.

    The tables become visible when all of their objects are verified. An interrupted call can be
    repeated. Raises `NotFoundError` if there is no such backup or table, `ConflictError` if a
    table exists, and `DataError` if an object of the backup is missing or damaged.
    """
    instance = opening.find_instance(where)
    try:
        like = None if instance is None else instance.storage.root
        place = open_place_to_read(os.fspath(source), like)
        backup_id = place.find(at)
        if instance is None:
            opening.create_instance(where, *instance_values(place.read(backup_id)))
            instance = open_ports(where)
        return restore(instance, place, backup_id, tables, on_progress)
    finally:
        if instance is not None:
            instance.close()


class Rowset:
    """The rows of a query or SQL statement: a stream that can be read once.

    Iteration yields `pyarrow.RecordBatch` objects; the `to_...` methods read all rows. The stream
    reads data files on demand, in bounded memory. It is a context manager and has the Arrow C
    stream interface. Close it to stop before the last row. `schema` is the Arrow schema of the
    rows.

    Reading raises `StateMovedOnError` if garbage collection deleted a data file of the version
    that is read, `InvalidRequestError` if the query exceeds a limit of rows or time, and
    `DataError` if a data file is missing or damaged.
    """

    def __init__(self, result: QueryResult) -> None:
        self._result = result
        self.schema: pa.Schema = result.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self._result)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """Stops reading and releases the version of the table."""
        self._result.close()

    def to_reader(self) -> pa.RecordBatchReader:
        """Returns the rows as a stream for other Arrow libraries."""
        return self._result.to_reader()

    def to_arrow(self) -> pa.Table:
        """Reads all rows into memory, as a PyArrow table."""
        return self._result.read_all()

    def to_pandas(self) -> "pandas.DataFrame":
        """Reads all rows into memory, as a pandas data frame. Requires pandas."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> "polars.DataFrame":
        """Reads all rows into memory, as a Polars data frame. Requires Polars."""
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame


class Changes:
    """The changes of a table in the order of their transactions: a stream that can be read once.

    Iteration yields `Change` objects. A change has `number`, `time_ms`, `time` and `job` of its
    transaction, and an `operation`:

    - `insert`: `rows` is a `pyarrow.RecordBatch` of added rows. The rows of a transaction are in
      key order, and may come as several changes.
    - `upsert`: as `insert`, for a table of latest rows: `rows` replace those of smaller numbers
      with the same row and sort keys.
    - `delete`: the rows of smaller numbers with the keys in `rows` were deleted.
    - `delete_region`: the rows of smaller numbers in `regions` were deleted, a list of regions as
      for `delete`.
    - `replace`: all rows were removed. The content of the table follows as inserts of the number.

    `to_arrow` of a change returns its rows with the columns `number`, `time`, `job`, `operation`,
    `row` and `region`, and `schema` is the Arrow schema of these.

    `start` is the number after which the changes begin, and `position` the number up to which all
    were taken. A change is taken when the next one is requested. The object is a context manager.
    """

    def __init__(self, reader: ChangeReader) -> None:
        self._reader = reader
        self.schema: pa.Schema = feed_schema(reader.schema)
        self.start: int = reader.start

    def __iter__(self) -> Iterator[Change]:
        return iter(self._reader)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stops reading. The progress that was not recorded yet is read again."""
        self._reader.close()

    @property
    def position(self) -> int:
        """The number of the last transaction whose changes were all taken."""
        return self._reader.position

    def commit(self) -> None:
        """Records the position for the follower at once; iteration does so from time to time."""
        self._reader.commit()

    def stop(self) -> None:
        """Ends an iteration that follows, from another thread, after the current transactions."""
        self._reader.stop()

    def to_reader(self) -> pa.RecordBatchReader:
        """Returns the changes as a stream of rows for other Arrow libraries."""
        schema = self._reader.schema
        batches = (check_columns(change, schema).to_arrow() for change in self)
        return pa.RecordBatchReader.from_batches(self.schema, batches)

    def to_arrow(self) -> pa.Table:
        """Reads all changes into memory, as a PyArrow table."""
        return self.to_reader().read_all()


class Table:
    """A table of an open instance. `Instance.table` and `Instance.create_table` return it.

    `name` is the table's name and `schema` its `sleeper.schema.model.Schema`. An object is valid
    until its instance is closed.
    """

    def __init__(self, instance: Ports, name: str) -> None:
        self._instance = instance
        self.name = name
        # Key fields never change, so keys need no newer schema.
        self._first_schema = read_schema(instance, name)

    @property
    def schema(self) -> Schema:
        """The newest schema of the table."""
        return read_schema(self._instance, self.name)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of the table's rows: row keys, then sort keys, then value fields."""
        return arrow_schema(self.schema)

    def ingest(
        self, rows: Rows, job_id: str | None = None, op_column: str | None = None
    ) -> IngestResult:
        """Adds rows to the table in one transaction: all of them, or none.

        Columns are matched by name, in any order, and cast to the types of the schema. Rows may
        have any order. An iterable may be larger than memory. `job_id` makes the call idempotent:
        a repeated call with the id of an earlier one, within 30 days, changes nothing. The
        default is a random id.

        A table with the property `sleeper.table.rows=latest` keeps the last row of each key.
        `op_column` names a column beside its fields with the operation of each row: `insert`,
        `update`, `upsert` or `delete`, or `c`, `r`, `u` or `d` as of Debezium. A row to delete
        hides the rows of its key, and its values may be null.

        Raises `InvalidRequestError` with the file, row and field of a value that does not fit the
        schema, and `UnavailableError` if a resource such as disk space is missing. After
        `UnavailableError` or an interrupt the rows may or may not be in the table: repeat the
        call with the job id in the error's message or note.
        """
        chosen = job_id or new_job_id()
        paths = _list_paths(rows)
        with annotate_errors(chosen, "job_id"):
            if paths is not None:
                return ingest_paths(self._instance, self.name, paths, chosen, op_column=op_column)
            batches = _read_batches(rows)
            return ingest_rows(self._instance, self.name, batches, chosen, op_column=op_column)

    def query(
        self,
        keys: Iterable[Sequence[object]] = (),
        ranges: Iterable[tuple[object | None, object | None]] = (),
        regions: Iterable[Mapping[str, Any]] = (),
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        as_of: AsOf | None = None,
        filters: str = "",
        aggregations: str = "",
        iterator: str | None = None,
        iterator_config: str = "",
    ) -> Rowset:
        """Returns the rows in any of the keys, ranges and regions, in key order.

        Without keys, ranges and regions it returns all rows. Each row is returned once.

        - `keys`: sequences with one value per row key field.
        - `ranges`: pairs (minimum, maximum) of the first row key field. The minimum is
          inclusive, the maximum exclusive. `None` leaves a side open.
        - `regions`: mappings from row key fields to ranges, as in docs/formats.md, "Regions and
          ranges". Strings are plain text unless `stringsBase64Encoded` is true.
        - `columns`: the columns to return, in this order. The default is all, in schema order.
        - `limit`: the maximum number of rows.
        - `as_of`: the version to read: a transaction number, or the last transaction at or before
          a time, which is a `datetime` or ISO 8601 text (UTC without a zone) or an age such as
          `"2h"`. The default is the newest.
        - `filters`, `aggregations`: additional processing in the syntax of the table properties,
          applied after the table's own.
        - `iterator`, `iterator_config`: the registered name of an iterator that is applied last,
          and its configuration.

        Raises `InvalidRequestError` for a column, key or value that does not fit the schema, and
        for a version that is no longer kept; `NotFoundError` if the table was deleted.
        """
        query = Query(
            self._select(keys, ranges, regions) or None,
            None if columns is None else tuple(columns),
            limit,
            None if as_of is None else parse_version(as_of),
            Processing(
                parse_filters(filters),
                parse_aggregations(aggregations),
                iterator_call(iterator, iterator_config),
            ),
        )
        return Rowset(open_query(self._instance, self.name, query))

    def delete(
        self,
        keys: Iterable[Sequence[object]] | Rows = (),
        ranges: Iterable[tuple[object | None, object | None]] = (),
        regions: Iterable[Mapping[str, Any]] = (),
        delete_id: str | None = None,
        keys_from: str | Path | Sequence[str | Path] = (),
    ) -> DeleteResult:
        """Deletes the rows in any of the keys, ranges and regions, in one transaction.

        Queries stop returning the rows at once, and compactions remove them from the files. Rows
        that are ingested later are kept. Reads as of an earlier transaction still return the
        rows. The arguments select rows as those of `query` do, but at least one is required: the
        range `(None, None)` deletes all rows. `delete_id` makes the call idempotent: a repeated
        call with the id of an earlier one, within 30 days, changes nothing. The default is a
        random id.

        `keys` may also be Arrow data, a pandas or Polars frame, and `keys_from` names CSV, JSON
        lines or Parquet files: their columns of the row key fields are used, others are ignored.
        Both may be larger than memory.

        Raises `InvalidRequestError` for a key or value that does not fit the schema, and
        `ConflictError` if the id was used for other rows. After `UnavailableError` the rows may
        or may not be deleted: repeat the call with the id in the error's message.
        """
        paths = _list_paths(keys_from) if keys_from else None
        if _is_arrow_data(keys):
            if paths is not None:
                raise InvalidRequestError(
                    "keys as Arrow data beside keys_from (expected one of them)"
                )
            others = self._select((), ranges, regions)
            batches = _read_batches(keys)
            return delete_key_rows(self._instance, self.name, batches, others, delete_id)
        selected = self._select(keys, ranges, regions)
        if paths is not None:
            return delete_keys_from(self._instance, self.name, paths, selected, delete_id)
        return delete_rows(self._instance, self.name, selected, delete_id)

    def restore(self, to: AsOf, restore_id: str | None = None) -> VersionChange:
        """Makes the rows of an old version those of the newest, in one transaction.

        `to` is a transaction number, a time or an age, as `as_of` of `query`. Schema, properties
        and partitions stay. `restore_id` makes the call idempotent: a repeated call with the id
        of an earlier one, within 30 days, changes nothing. The default is a random id. The result
        has the `number` of the transaction, and the `version` that was restored.

        Raises `InvalidRequestError` for a version that is no longer readable or does not exist
        yet, and `ConflictError` if the id was used for another version. After `UnavailableError`
        repeat the call with the id in the error's message.
        """
        return restore_table(self._instance, self.name, parse_version(to), restore_id)

    def undo(self, job_id: str) -> VersionChange:
        """Takes back what an ingest or import added, in one transaction.

        Rows that other jobs added stay, and the job's id stays used. The result has the `number`
        of the transaction, `None` if no row of the job is in the table.

        Raises `NotFoundError` if the table has no such job within 30 days, and
        `InvalidRequestError` if a compaction has merged rows of the job with others.
        """
        return undo_job(self._instance, job_id, self.name)

    def reinitialise(
        self, request_id: str | None = None, split_points: Sequence[object] = ()
    ) -> VersionChange:
        """Removes all rows, in one transaction. Schema, properties and partitions stay.

        Then leaves are split at those of `split_points` that divide one: values of the first row
        key field, in ascending order. Garbage collection deletes the files; until then `restore`
        brings the rows back. `request_id` makes the call idempotent, as `restore_id` of `restore`
        does.

        Raises `InvalidRequestError` for a split point that is not valid.
        """
        return reinitialise_table(self._instance, self.name, request_id, split_points)

    def purge(
        self,
        keys: Iterable[Sequence[object]] = (),
        ranges: Iterable[tuple[object | None, object | None]] = (),
        regions: Iterable[Mapping[str, Any]] = (),
        wait: bool = False,
    ) -> PurgeReport:
        """Removes deleted rows from the storage, and reports on the objects that held them.

        Without keys, ranges and regions it removes all rows that are deleted now. It rewrites the
        files that may hold deleted rows, deletes the replaced files, the older snapshots and the
        log, and rewrites the file of the state. On a local instance it also runs queued compaction
        jobs.

        `report.objects` lists each object: it is *gone*, *kept* with the reason and perhaps the
        time until when, or it *remains* because a purge cannot remove it. Holds, followers, the
        delay of the garbage collection and unfinished runs keep objects. With `wait` the call
        repeats its steps until nothing is kept, otherwise `report.is_complete` may be false:
        repeat the call later. An interrupted purge can be repeated too.

        Raises `InvalidRequestError` for a key or value that does not fit the schema, and if a row
        in the keys, ranges and regions is not deleted.
        """
        selected = self._select(keys, ranges, regions)
        return purge_table(self._instance, self.name, selected, wait)

    def _select(
        self,
        keys: Iterable[Sequence[object]],
        ranges: Iterable[tuple[object | None, object | None]],
        regions: Iterable[Mapping[str, Any]],
    ) -> tuple[Region, ...]:
        plain = {"stringsBase64Encoded": False}
        return (
            *make_key_regions(self._first_schema, keys),
            *(make_range_region(self._first_schema, low, high) for low, high in ranges),
            *(region_from_json(self._first_schema, {**plain, **region}) for region in regions),
        )

    def changes(
        self,
        since: datetime | str | None = None,
        from_number: int | None = None,
        to_number: int | None = None,
        follow: bool = False,
        follower: str | None = None,
    ) -> Changes:
        """Returns what each transaction changed, in the order of their numbers.

        - `since`: begin after this time, which is a `datetime`, ISO 8601 text (UTC without a zone)
          or an age such as `"2d"`.
        - `from_number`: begin with this transaction. The default is the first one of the table.
        - `to_number`: end with this transaction. The default is the newest at the call.
        - `follow`: wait for new transactions, until `to_number`, or without end.
        - `follower`: continue where the follower of this name stands, and record its progress when
          changes were taken. A new name begins at the requested start. The table keeps the
          changes that a follower has not read. After an interruption the changes that were not
          recorded come again with the same numbers.

        Rows have the newest schema. Filters and aggregations of the table are not applied.

        Raises `InvalidRequestError` if the start or end does not exist, or if changes after the
        start are no longer kept, which the iteration raises too.
        """
        request = make_changes_request(since, from_number, to_number, follow, follower)
        return Changes(open_changes(self._instance, self.name, request))

    def add_field(
        self,
        name: str,
        field_type: FieldType | str,
        default: Default | None = None,
        after: str | None = None,
        aggregation: str | None = None,
        change_id: str | None = None,
    ) -> SchemaChange:
        """Adds a nullable value field, in one transaction. No file is rewritten.

        `field_type` is a type of `sleeper.schema.model`, or its name, such as `"LongType"` or
        `"DecimalType(9,2)"`. Rows of earlier files have the `default` in the field, `None` for
        null: a number, text or truth value; text for decimals, times and dates, base64 for byte
        arrays. `after` is the name of the field before it. A table that aggregates requires an
        `aggregation`, such as `"sum"`. `change_id` makes the call idempotent: a repeated call
        with the id of an earlier one, within 30 days, changes nothing. The result has the
        `number` of the transaction and the new `schema`.

        Raises `InvalidRequestError` if the field cannot be added, and `ConflictError` if the id
        was used for another change. After `UnavailableError` repeat the call with the id in the
        error's message.
        """
        kind = parse_type(field_type) if isinstance(field_type, str) else field_type
        field = Field(name, kind, default=default)
        operation = None if aggregation is None else _parse_operation(aggregation)
        return self._change(AddField(field, after, operation), change_id)

    def drop_field(self, name: str, change_id: str | None = None) -> SchemaChange:
        """Removes a value field, in one transaction; otherwise like `add_field`.

        Queries as of an earlier transaction still return its values.
        """
        return self._change(DropField(name), change_id)

    def rename_field(self, name: str, new_name: str, change_id: str | None = None) -> SchemaChange:
        """Renames a value field, in the table's filters and aggregations too, as `add_field`."""
        return self._change(RenameField(name, new_name), change_id)

    def widen_field(
        self, name: str, field_type: FieldType | str, change_id: str | None = None
    ) -> SchemaChange:
        """Changes the type of a value field to a wider one; otherwise like `add_field`.

        IntType becomes LongType, FloatType becomes DoubleType, a DecimalType gets more digits.
        """
        kind = parse_type(field_type) if isinstance(field_type, str) else field_type
        return self._change(WidenField(name, kind), change_id)

    def order_fields(self, names: Sequence[str], change_id: str | None = None) -> SchemaChange:
        """Orders the value fields, all of which are named; otherwise like `add_field`."""
        return self._change(OrderFields(tuple(names)), change_id)

    def _change(self, change: FieldChange, change_id: str | None) -> SchemaChange:
        return change_schema(self._instance, self.name, (change,), change_id)

    def history(self, limit: int = 50) -> list[HistoryEntry]:
        """Returns what each of the newest transactions did, newest first.

        An entry has `number`, `time_ms`, `operation` in words, `job`, and the `files`, `rows` and
        `bytes` that the transaction wrote, assigned or removed, `None` if it has none. The state
        keeps the transactions from the oldest readable version on, and at least the newest 1,000.

        Raises `InvalidRequestError` for a negative limit.
        """
        if limit < 0:
            raise InvalidRequestError(f"limit {limit} is negative")
        with self._instance.table(self.name).state.reading() as state:
            return state.history.newest(limit)

    @property
    def version(self) -> int:
        """The number of the newest transaction, a value for `as_of`."""
        with self._instance.table(self.name).state.reading() as state:
            return int(state.number)


class Instance:
    """An open instance: a context manager that closes it at the end.

    Several threads may use one object, and several processes may open one instance. An open
    instance does not survive a fork: start processes afresh and open the instance there.
    """

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the databases and files of the instance."""
        self._ports.close()

    def tables(self) -> list[str]:
        """Returns the names of all tables, in the order of their UTF-8 bytes."""
        return [ref.name for ref in self._ports.tables.index.list()]

    def table(self, name: str) -> Table:
        """Returns the table of this name. Raises `NotFoundError` if it does not exist."""
        return Table(self._ports, name)

    def create_table(
        self,
        name: str,
        schema: Schema | Mapping[str, Any] | str,
        properties: Mapping[str, str] | None = None,
        split_points: Sequence[object] = (),
    ) -> Table:
        """Creates a table.

        `schema` is a `sleeper.schema.model.Schema`, or schema JSON as text or as a mapping.
        `properties` are table properties by name. `split_points` are values of the first row key
        field, in ascending order, at which the key space is cut into partitions.

        Raises `InvalidRequestError` for a schema, property or split point that is not valid, and
        `ConflictError` if a table of this name exists.
        """
        if isinstance(schema, Schema):
            text = schema_to_json(schema)
        else:
            text = schema if isinstance(schema, str) else json.dumps(schema)
        schema_from_json(text)
        table_admin.create_table(self._ports, name, text, properties, split_points)
        return self.table(name)

    def clone_table(self, source: str, name: str, as_of: AsOf | None = None) -> Table:
        """Creates a table on the files of a version of another. No data is copied.

        `as_of` is a transaction number, a time or an age, as for `Table.query`; the default is the
        newest version. The table has the rows, schema, partitions and properties of the version.
        Both tables change independently, and either can be deleted.

        Raises `NotFoundError` if the source does not exist, `ConflictError` if a table of the new
        name exists, and `InvalidRequestError` for a version that is not readable. A call after an
        interrupted one starts again.
        """
        version = None if as_of is None else parse_version(as_of)
        clone_table(self._ports, source, name, version)
        return self.table(name)

    def delete_table(self, name: str) -> None:
        """Deletes a table. Its name is free at once; background work deletes its files later.

        Raises `NotFoundError` if the table does not exist.
        """
        table_admin.delete_table(self._ports, name)

    def sql(self, statement: str, as_of: AsOf | Mapping[str, AsOf] | None = None) -> Rowset:
        """Runs one SELECT statement, which may name any tables of the instance.

        Each table is read at one version: the newest, unless `as_of` gives another, as for
        `Table.query`. A time or an age applies to all tables. A number is that of a statement's
        only table; for several tables, `as_of` is a mapping from names to versions. Rows have no
        order without ORDER BY.

        Raises `InvalidRequestError` for a statement that is not valid or not a SELECT, and for a
        version that is no longer kept.
        """
        return Rowset(open_sql(self._ports, statement, as_of=parse_as_of(as_of)))

    def explain(
        self, statement: str, as_of: AsOf | Mapping[str, AsOf] | None = None
    ) -> SqlExplanation:
        """Runs a SELECT statement, discards its rows, and returns the amounts that it read.

        Arguments and errors are those of `sql`.
        """
        return explain_statement(self._ports, statement, parse_as_of(as_of))

    def backup(
        self,
        destination: str | os.PathLike[str],
        tables: Sequence[str] = (),
        keep: int | None = None,
        on_progress: OnProgress = lambda _done, _total: None,
    ) -> BackupResult:
        """Backs up tables of the instance while it is in use, each at its newest version.

        `destination` is a folder or `s3://bucket/prefix`, which is empty or has earlier backups of
        the instance: only objects that it lacks are copied. `tables` are names; the default is all
        tables. `keep` deletes all but that many newest backups. The result has `id` of the
        backup, and for each of `tables` its `name`, `number`, `files`, `rows`, `bytes`,
        `copied_objects` and `copied_bytes`. `restore_instance` restores it. `on_progress` receives
        the number of bytes of data files that are done, and the total.

        Raises `InvalidRequestError` for a destination that is inside the instance or holds other
        files, `NotFoundError` for an unknown table, `ConflictError` if another backup to the
        destination runs, and `DataError` for a missing or damaged data file. A call can be
        repeated after any error.
        """
        return back_up(self._ports, os.fspath(destination), tables, keep, on_progress)

    def run_until_idle(self, workers: int | None = None) -> RunStatus:
        """Runs the background work of a local instance until none is left.

        The work is queued jobs, compaction, splitting, garbage collection and snapshots.
        `workers` is the number of worker processes. The default is the property
        `sleeper.local.workers`, or one per processor.

        Raises `InvalidRequestError` for an instance on AWS, which runs this work by itself.
        """
        return run_instance(self._ports, until_idle=True, workers=workers)


def _parse_operation(text: str) -> AggregationOp:
    known = {each.value: each for each in AggregationOp}
    if text not in known:
        raise InvalidRequestError(
            f"unknown aggregation: {text!r} (expected one of {', '.join(known)})"
        )
    return known[text]


def _is_arrow_data(keys: object) -> bool:
    first = keys[0] if isinstance(keys, list | tuple) and keys else keys
    return (
        isinstance(first, pa.RecordBatch | pa.Table)
        or hasattr(keys, "__arrow_c_stream__")
        or type(keys).__module__.partition(".")[0] == "pandas"
    )


def _list_paths(rows: Rows) -> list[str] | None:
    if isinstance(rows, str | Path):
        return [os.fspath(rows)]
    if isinstance(rows, list | tuple) and rows and all(isinstance(r, str | Path) for r in rows):
        return [os.fspath(r) for r in rows]
    return None


def _read_batches(rows: Rows) -> Iterator[pa.RecordBatch]:
    if isinstance(rows, pa.RecordBatch):
        yield rows
    elif isinstance(rows, pa.Table):
        yield from rows.to_batches()
    elif type(rows).__module__.partition(".")[0] == "pandas":
        yield from pa.Table.from_pandas(rows, preserve_index=False).to_batches()
    elif hasattr(rows, "__arrow_c_stream__"):
        yield from pa.RecordBatchReader.from_stream(rows)
    elif isinstance(rows, Iterable):
        for each in rows:
            if not isinstance(each, pa.RecordBatch | pa.Table):
                raise InvalidRequestError(
                    f"unsupported rows: {type(each).__name__} (expected Arrow batches)"
                )
            yield from each.to_batches() if isinstance(each, pa.Table) else [each]
    else:
        raise InvalidRequestError(
            f"unsupported rows: {type(rows).__name__} (expected Arrow data or paths of files)"
        )
