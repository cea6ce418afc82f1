"""A table of an open instance."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from sleeper.api.argument_types import check_argument_types
from sleeper.api.notebook import table_html
from sleeper.api.reader import TableReader
from sleeper.api.results import Changes, Rowset
from sleeper.api.rows import Rows, is_arrow_data, list_paths, read_batches
from sleeper.api.table_fields import TableFields
from sleeper.api.table_upkeep import TableUpkeep
from sleeper.api.table_versions import AsOf, TableVersions
from sleeper.api.table_writer import TableWriter
from sleeper.api.transaction import Transaction
from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.sources.rejects import Rejects
from sleeper.deletion.keys import delete_key_rows, delete_keys_from, delete_rows
from sleeper.deletion.service import DeleteResult
from sleeper.errors import ConflictError, InvalidRequestError
from sleeper.ingest.run import IngestResult
from sleeper.ingest.service import annotate_errors, find_source_schema, ingest_paths, ingest_rows
from sleeper.instance import Instance as Ports
from sleeper.jobs.ingest_job import new_job_id
from sleeper.processing.model import Processing
from sleeper.processing.text import (
    iterator_call,
    parse_aggregations,
    parse_filters,
)
from sleeper.purging.report import PurgeReport
from sleeper.purging.service import purge_table
from sleeper.query.changes.service import make_changes_request, open_changes
from sleeper.query.request import Query, select_regions
from sleeper.query.service import open_query, read_schema
from sleeper.query.sql.service import open_sql
from sleeper.retries import Backoff, retry
from sleeper.schema.model import Schema
from sleeper.statestore.version import parse_version
from sleeper.storage.source_options import make_source_options

R = TypeVar("R")

_CONFLICTS = Backoff(seconds_first=0.02, seconds_max=1.0)


@check_argument_types
class Table(TableVersions, TableFields, TableUpkeep):
    """A table of an open instance. `Instance.table` and `Instance.create_table` return it.

    `name` is the table's name and `schema` its `sleeper.schema.model.Schema`. An object is valid
    until its instance is closed. `len(table)` counts the rows of the newest version by SQL; a
    notebook shows the fields and the size.
    """

    def __init__(self, instance: Ports, name: str) -> None:
        self._instance = instance
        self.name = name
        # Key fields never change, so keys need no newer schema.
        self._first_schema = read_schema(instance, name)

    def __repr__(self) -> str:
        return f"Table({self.name!r})"

    def __len__(self) -> int:
        with open_sql(self._instance, f'SELECT count(*) FROM "{self.name}"') as rows:
            return int(rows.read_all().column(0)[0].as_py())

    def __bool__(self) -> bool:
        # Without it, `if table:` would count rows.
        return True

    def _repr_html_(self) -> str:
        return table_html(self._instance, self.name)

    @property
    def schema(self) -> Schema:
        """The newest schema of the table."""
        return read_schema(self._instance, self.name)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of the table's rows: row keys, then sort keys, then value fields."""
        return arrow_schema(self.schema)

    def ingest(
        self,
        rows: Rows,
        job_id: str | None = None,
        op_column: str | None = None,
        format: str | None = None,
        delimiter: str | None = None,
        encoding: str | None = None,
        header: bool | None = None,
        columns: Sequence[str] = (),
        nested: str | None = None,
        rejects: str | Path | None = None,
        rejects_max: int | None = None,
    ) -> IngestResult:
        """Adds rows to the table in one transaction: all of them, or none.

        In a snapshot table the call is a load: the rows replace all rows of the table, as a new
        version, and without rows the table is empty. Raises `InvalidRequestError` if a load that
        began later has published; the rows are then not in the table.

        Columns are matched by name, in any order, and cast to the types of the schema. Rows may
        have any order. An iterable may be larger than memory. `job_id` makes the call idempotent:
        a repeated call with the id of an earlier one, within 30 days, changes nothing. The
        default is a random id.

        A table with the property `sleeper.table.rows=latest` keeps the last row of each key.
        `op_column` names a column beside its fields with the operation of each row: `insert`,
        `update`, `upsert` or `delete`, or `c`, `r`, `u` or `d` as of Debezium. A row to delete
        hides the rows of its key, and its values may be null.

        The format of files is detected unless an argument gives it: `format` is `parquet`, `csv`
        or `json`, `delimiter` and `encoding` are those of text, `header` is whether CSV has one,
        and `columns` are the names of the columns of CSV. `nested="json"` keeps nested columns,
        such as structs, as JSON text in `StringType` fields, also those of Arrow data.

        `rejects` is a file for the invalid rows of files, as JSON lines; the others are ingested.
        By default, one invalid row rejects the job. More than `rejects_max` invalid rows, or no
        valid one, reject it too. `rejected` of the result is the number of invalid rows.

        Raises `InvalidRequestError` with the file, row and field of a value that does not fit the
        schema, and `UnavailableError` if a resource such as disk space is missing. After
        `UnavailableError` or an interrupt the rows may or may not be in the table: repeat the
        call with the job id in the error's message or note.
        """
        chosen = job_id or new_job_id()
        paths = list_paths(rows)
        options = make_source_options(format, delimiter, encoding, header, tuple(columns), nested)
        if rejects_max is not None and rejects is None:
            raise InvalidRequestError("rejects_max without rejects (expected the file for them)")
        if rejects is not None and paths is None:
            raise InvalidRequestError("rejects with rows in memory (expected paths of files)")
        with _open_rejects(rejects, rejects_max) as rejected, annotate_errors(chosen, "job_id"):
            if paths is not None:
                return ingest_paths(
                    self._instance,
                    self.name,
                    paths,
                    chosen,
                    rejected,
                    op_column=op_column,
                    options=options,
                )
            return ingest_rows(
                self._instance,
                self.name,
                read_batches(rows, self._find_source_schema, op_column),
                chosen,
                op_column=op_column,
                options=options,
            )

    def writer(self) -> TableWriter:
        """Opens a writer of small batches of rows, which writes those of several threads together.

        Use it as a context manager. An ingest of many rows takes less time than a writer does.

        Raises `NotFoundError` if the table was deleted.
        """
        self._instance.table(self.name)
        return TableWriter(self._instance, self.name)

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
            select_regions(self._first_schema, keys, ranges, regions) or None,
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

    def _find_source_schema(self) -> pa.Schema:
        return arrow_schema(find_source_schema(self._instance.table(self.name)))

    def head(self, n: int = 5) -> pa.Table:
        """Returns the first rows in key order, at most `n`, as a PyArrow table.

        Raises `InvalidRequestError` for a negative number.
        """
        return self.query(limit=n).to_arrow()

    def reader(self) -> TableReader:
        """Opens a reader of the newest version, which stays the same until it is refreshed.

        Raises `InvalidRequestError` for a snapshot table that has no snapshot yet, or whose newest
        version has expired, and `NotFoundError` if the table was deleted.
        """
        return TableReader(self, self._instance.table(self.name))

    def transaction(self, id: str | None = None) -> Transaction:
        """Begins a transaction: reads at one version, and changes that are committed together.

        Use it as a context manager: the end of the block commits, an exception discards all
        changes. `id` makes it idempotent: a transaction with the id of an earlier one, within 30
        days, changes nothing. The default is a random id.

        Raises `InvalidRequestError` if the id was used for something else, and `NotFoundError` if
        the table was deleted.
        """
        return Transaction(self, self._instance.table(self.name), id)

    def transact(self, function: Callable[[Transaction], R], tries: int = 20) -> R:
        """Runs a function with a transaction, commits it, and returns the function's result.

        After `ConflictError` it runs the function again, with a new transaction and after a random
        wait of up to a second, `tries` times in all. Then it raises the error.
        """

        def attempt() -> R:
            with self.transaction() as transaction:
                return function(transaction)

        return retry(attempt, on=ConflictError, backoff=replace(_CONFLICTS, retries=tries - 1))

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
        paths = list_paths(keys_from) if keys_from else None
        if is_arrow_data(keys):
            if paths is not None:
                raise InvalidRequestError(
                    "keys as Arrow data beside keys_from (expected one of them)"
                )
            others = select_regions(self._first_schema, (), ranges, regions)
            batches = read_batches(keys)
            return delete_key_rows(self._instance, self.name, batches, others, delete_id)
        selected = select_regions(self._first_schema, keys, ranges, regions)
        if paths is not None:
            return delete_keys_from(self._instance, self.name, paths, selected, delete_id)
        return delete_rows(self._instance, self.name, selected, delete_id)

    def purge(
        self,
        keys: Iterable[Sequence[object]] = (),
        ranges: Iterable[tuple[object | None, object | None]] = (),
        regions: Iterable[Mapping[str, Any]] = (),
        wait: bool = False,
        timeout_seconds: float | None = None,
    ) -> PurgeReport:
        """Removes deleted rows from the storage, and reports on the objects that held them.

        Without keys, ranges and regions it removes all rows that are deleted now. It rewrites the
        files that may hold deleted rows, deletes the replaced files, the older snapshots and the
        log, and rewrites the file of the state. On a local instance it also runs queued compaction
        jobs.

        `report.objects` lists each object: it is *gone*, *kept* with the reason and perhaps the
        time until when, or it *remains* because a purge cannot remove it. Holds, followers, the
        delay of the garbage collection and unfinished runs keep objects. With `wait` the call
        repeats its steps until nothing is kept, or until `timeout_seconds` have passed. If
        `report.is_complete` is false, repeat the call later. An interrupted purge can be repeated
        too.

        Raises `InvalidRequestError` for a key or value that does not fit the schema, and if a row
        in the keys, ranges and regions is not deleted.
        """
        selected = select_regions(self._first_schema, keys, ranges, regions)
        return purge_table(
            self._instance, self.name, selected, wait, timeout_seconds=timeout_seconds
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


@contextmanager
def _open_rejects(path: str | Path | None, rows_max: int | None) -> Iterator[Rejects | None]:
    if path is None:
        yield None
        return
    with Path(path).open("a", encoding="utf-8") as sink:
        yield Rejects(sink, rows_max)
