"""Exports to another table of the instance: `table:NAME`.

The table has the keys of the queue, its values and `sequence`. A table that shows the latest rows
by `sequence` gets upserts and tombstones. In any other table a batch replaces older rows of its
keys (`table_replacement`).
"""

import hashlib
import json

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import arrow_schema, default_column
from sleeper.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    StateMovedOnError,
    UnavailableError,
)
from sleeper.export_queue.definition import SEQUENCE, TOMBSTONE, ExportQueue
from sleeper.export_queue.exporter import ExportBatch, RefusedExportsError
from sleeper.export_queue.exporters.options import check_options, exporter_name
from sleeper.export_queue.exporters.table_replacement import replace_older_rows
from sleeper.export_queue.exporters.target_table import check_target, create_target
from sleeper.export_queue.rows import encode_rows, leave_out, newest_rows
from sleeper.export_queue.store import open_export_store
from sleeper.ingest.run import ingest_batches
from sleeper.ingest.service import ingest_table
from sleeper.instance import Instance, OpenTable
from sleeper.schema.model import LatestRows, Schema

_OPERATION = "__operation"


def check(instance: Instance, queue: ExportQueue) -> None:
    """Creates the table unless it exists. InvalidRequestError if it does not fit the queue."""
    settings = queue.exporter
    check_options(queue, ())
    if settings.password is not None:
        raise InvalidRequestError(f"{exporter_name(queue)}: a password is given (expected none)")
    create_target(instance, queue, settings.target)
    with instance.table(settings.target).state.reading() as state:
        check_target(queue, settings.target, state)


def make(instance: Instance, queue: ExportQueue) -> "TableExporter":
    """Returns an exporter."""
    return TableExporter(instance, queue)


class TableExporter:
    """Writes exports to a table, newest sequence wins."""

    def __init__(self, instance: Instance, queue: ExportQueue) -> None:
        self._instance = instance
        self._queue = queue
        self._name = queue.exporter.target
        try:
            self._generation = open_export_store(instance).find(queue.name).generation
        except NotFoundError:
            self._generation = 0

    def export(self, batch: ExportBatch) -> None:
        """Commits the rows of a batch. RefusedExportsError for null in a field without nulls."""
        try:
            table = self._instance.table(self._name)
            with table.state.reading() as state:
                check_target(self._queue, self._name, state)
                schema = state.schema
            refused = self._find_nulls(batch.rows, schema)
            rows = newest_rows(self._queue, leave_out(batch.rows, refused))
            if rows.num_rows:
                self._write(table, schema, batch.bucket, rows)
        except (ConflictError, InvalidRequestError, NotFoundError, StateMovedOnError) as error:
            # Values have been checked, so the table is at fault: exports wait for its repair.
            raise UnavailableError(f"exporter table:{self._name}: {error}") from error
        if refused:
            raise RefusedExportsError(refused)

    def close(self) -> None:
        """Does nothing, because an exporter has no connection."""

    def _write(self, table: OpenTable, schema: Schema, bucket: int, rows: pa.RecordBatch) -> None:
        job_id = self._job_id(bucket, rows)
        fitting = _fit_rows(rows, schema)
        tombstones = rows.column(TOMBSTONE)
        if schema.latest != LatestRows(SEQUENCE):
            replace_older_rows(table, fitting, tombstones, job_id)
            return
        operations = pc.if_else(tombstones, "delete", "upsert")
        upserts = fitting.append_column(_OPERATION, operations)
        request = json.dumps({"exports": job_id})
        ingest_batches(ingest_table(table), job_id, [upserts], request, op_column=_OPERATION)

    def _job_id(self, bucket: int, rows: pa.RecordBatch) -> str:
        """Returns an id that a repeated batch of the queue has again."""
        digest = hashlib.sha256(encode_rows([rows])).hexdigest()[:32]
        return f"export-{self._queue.name}-{self._generation}-{bucket}-{digest}"

    def _find_nulls(self, rows: pa.RecordBatch, schema: Schema) -> dict[int, str]:
        """Returns the positions of rows with a null that the table cannot have."""
        refused: dict[int, str] = {}
        for value in self._queue.values:
            column = rows.column(value.name)
            if schema.field(value.name).nullable or not column.null_count:
                continue
            is_wrong = pc.and_(pc.is_null(column), pc.invert(rows.column(TOMBSTONE)))
            for position in pc.indices_nonzero(is_wrong).to_pylist():
                reason = f"field {value.name!r} is null (expected a value: the table has no nulls)"
                refused.setdefault(position, reason)
        return refused


def _fit_rows(rows: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Returns the rows with the fields of the table, and defaults of those the queue lacks."""
    kind = arrow_schema(schema)
    nullable = pa.schema([field.with_nullable(True) for field in kind])
    arrays = [
        rows.column(each.name).cast(field.type)
        if each.name in rows.schema.names
        else default_column(each, rows.num_rows)
        for each, field in zip(schema.fields, kind, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=nullable)
