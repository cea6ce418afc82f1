"""Replaces older rows of keys in a table that does not order rows by `sequence` itself.

The sequences that the table has are read at a version. Rows of older ones are deleted and the
newer rows added in one entry of the log, on the condition that nobody has changed the keys since.
Such a table keeps no tombstones: an export from before the end of its key, which a worker sends
late, gets in.
"""

import threading
from collections import defaultdict
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.key_values import key_values
from sleeper.deletion.keys import write_delete
from sleeper.errors import ConflictError, StateMovedOnError
from sleeper.export_queue.definition import SEQUENCE
from sleeper.ingest.run import stage_rows
from sleeper.ingest.service import ingest_table
from sleeper.instance import OpenTable
from sleeper.partitions.region import Region
from sleeper.query.request import Query, regions_of_keys
from sleeper.query.service import open_query
from sleeper.retries import Backoff, retry
from sleeper.runs.commit import begin_run, commit_until_settled
from sleeper.schema.model import Schema
from sleeper.statestore.transactions.check_unchanged import CHANGED, CheckUnchanged
from sleeper.statestore.transactions.transaction import Transaction, new_transaction_id

_ROWS_PER_COMMIT = 5_000
# Reads compare every file with every deleted region, but only once with a key file.
_REGION_BYTES_MAX = 1_000
_ROW, _TOMBSTONE = "__row", "__gone"
_BACKOFF = Backoff(seconds_first=0.05, seconds_max=1.0, jitter=0.5, seconds_total=20.0)
# Commits of one table by the threads of this process would refuse each other.
_LOCKS: dict[str, threading.Lock] = defaultdict(threading.Lock)


def replace_older_rows(
    table: OpenTable, rows: pa.RecordBatch, tombstones: pa.Array, job_id: str
) -> None:
    """Replaces rows of smaller sequences by rows with the fields of the table.

    No key is there twice. A tombstone only removes older ones.
    ConflictError if other writers always are faster.
    """
    for start in range(0, rows.num_rows, _ROWS_PER_COMMIT):
        part, deleted = (
            rows.slice(start, _ROWS_PER_COMMIT),
            tombstones.slice(start, _ROWS_PER_COMMIT),
        )
        with _LOCKS[table.ref.id]:
            retry(
                partial(_replace, table, part, deleted, job_id),
                on=(ConflictError,),
                backoff=_BACKOFF,
            )


@dataclass(frozen=True, slots=True)
class _Change:
    """Regions to delete, and the rows to add after that."""

    deleted: tuple[Region, ...]
    added: pa.Table


def _replace(table: OpenTable, rows: pa.RecordBatch, tombstones: pa.Array, job_id: str) -> None:
    with table.state.reading() as state:
        version, schema = state.number, state.schema
    regions = _regions(schema, pa.table(rows))
    query = Query(regions, version=version, raw=True)
    present = open_query(table.instance, table.ref.name, query).read_all()
    change = _find_change(schema, present, pa.table(rows), tombstones)
    # The id of an attempt is new, because what it found may differ.
    attempt = f"{job_id}-{new_transaction_id()[:12]}"
    changes: list[Transaction] = [CheckUnchanged(version, regions)]
    if change.deleted:
        changes.append(write_delete(table, change.deleted, attempt, attempt, _REGION_BYTES_MAX))
    if change.added.num_rows:
        start = begin_run(table.state, table.instance.clock, attempt)
        with stage_rows(ingest_table(table), start) as staged:
            staged.add_batches(change.added.to_batches())
            changes.append(start.commit_of(attempt, staged.write(), attempt))
    if len(changes) > 1:
        _commit(table, changes)


def _commit(table: OpenTable, changes: list[Transaction]) -> None:
    outcome = commit_until_settled(lambda: table.state.commit_together(*changes))[-1]
    if outcome.refused:
        kind = ConflictError if outcome.reason.startswith(CHANGED) else StateMovedOnError
        raise kind(f"table {table.ref.name!r}: {outcome.reason}")


def _find_change(
    schema: Schema, present: pa.Table, rows: pa.Table, tombstones: pa.Array
) -> _Change:
    keys = [field.name for field in schema.keys]
    row_keys = [field.name for field in schema.row_keys]
    held = present.group_by(keys).aggregate([(SEQUENCE, "max")])
    given = _with_row_numbers(rows.select([*keys, SEQUENCE])).append_column(_TOMBSTONE, tombstones)
    joined = given.join(held, keys, join_type="left outer")
    newest = joined.column(f"{SEQUENCE}_max")
    newer = joined.filter(pc.fill_null(pc.greater(joined.column(SEQUENCE), newest), True))
    replaced = newer.filter(pc.is_valid(newer.column(f"{SEQUENCE}_max"))).select(keys)
    added = newer.filter(pc.invert(newer.column(_TOMBSTONE)))
    # A region has all sort keys of its row keys, so rows of the others are added again.
    kept = _with_row_numbers(present.select(keys)).join(replaced, keys, join_type="left anti")
    kept = kept.join(replaced.select(row_keys), row_keys, join_type="left semi")
    names = [field.name for field in schema.fields]
    parts = [(rows, added), (present, kept)]
    taken = [table.select(names).take(chosen.column(_ROW)) for table, chosen in parts]
    target = arrow_schema(schema)
    nullable = pa.schema([field.with_nullable(True) for field in target])
    together = pa.concat_tables([each.cast(nullable) for each in taken])
    return _Change(_regions(schema, replaced), together.cast(target))


def _with_row_numbers(rows: pa.Table) -> pa.Table:
    """Returns the rows with their numbers. Arrow does not join columns of all types."""
    return rows.append_column(_ROW, pa.array(np.arange(rows.num_rows)))


def _regions(schema: Schema, rows: pa.Table) -> tuple[Region, ...]:
    """Returns the distinct row keys as regions."""
    names = [field.name for field in schema.row_keys]
    distinct = rows.select(names).group_by(names).aggregate([])
    columns = [key_values(distinct.column(name).combine_chunks()) for name in names]
    return tuple(regions_of_keys(schema, list(zip(*columns, strict=True))))
