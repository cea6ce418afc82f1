"""Rows of a table whose text is not JSON, before a field of text becomes `JSONType`.

Rows count that a query does not return, but a later version could: those that the table's filters
leave out, and in a table of latest rows those that newer rows hide. Deleted rows do not count.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.json_limits import JsonLimits
from sleeper.datafiles.merge.request import Stored, with_hidden
from sleeper.datafiles.validity import UnfitError, check_documents
from sleeper.query.engine import QueryEngine, QueryTable
from sleeper.query.hold import VersionHold
from sleeper.query.leaf_plan import LeafPlan
from sleeper.query.plan import QueryPlan
from sleeper.query.request import Query
from sleeper.query.result import TimeLimit
from sleeper.query.run import plan_table_query, read_rows
from sleeper.schema.model import DELETED_COLUMN


@dataclass(frozen=True, slots=True)
class TextCheck:
    """The version that was read, and its first rows whose text is not JSON, with the reasons."""

    version: int
    faults: tuple[str, ...]


def check_text(
    table: QueryTable,
    engine: QueryEngine,
    name: str,
    limits: JsonLimits,
    faults_max: int,
) -> TextCheck:
    """Reads a field of text of all rows of the newest version, in bounded memory.

    StateMovedOnError if its files are collected meanwhile.
    """
    plan = plan_table_query(Query(raw=True), table)
    hold = VersionHold(
        table.store,
        plan.version,
        engine.settings.hold_seconds,
        engine.clock,
        f"check of JSON {table.name}",
    )
    faults: list[str] = []
    hold.acquire()
    try:
        for batch in _read(plan, table, engine, name):
            faults += _find_faults(batch, name, limits, faults_max - len(faults))
            if len(faults) >= faults_max:
                break
    finally:
        hold.release()
    return TextCheck(plan.version, tuple(faults))


def _read(
    plan: QueryPlan, table: QueryTable, engine: QueryEngine, name: str
) -> Iterator[pa.RecordBatch]:
    """Yields the keys and the field of all rows that are not deleted, and of no tombstone."""
    schema, stored = plan.schema, None
    columns = (*(field.name for field in schema.keys), name)
    if schema.latest is not None:
        # Of a file alone, no row hides another.
        alone = [LeafPlan(leaf.leaf_ids, (scan,)) for leaf in plan.leaves for scan in leaf.scans]
        plan = replace(plan, leaves=tuple(alone))
        stored = Stored(has_numbers=False)
        schema = with_hidden(schema, has_numbers=False, has_tombstones=True)
        columns = (*columns, DELETED_COLUMN)
    whole = arrow_schema(schema)
    target = pa.schema([whole.field(each) for each in columns])
    query, limit = Query(columns=columns, raw=True), TimeLimit()
    for batch in read_rows(plan, query, table.root, engine, target, (), limit, stored):
        if stored is None:
            yield batch
        else:
            yield batch.filter(pc.invert(pc.fill_null(batch.column(DELETED_COLUMN), False)))


def _find_faults(
    batch: pa.RecordBatch, name: str, limits: JsonLimits, faults_max: int
) -> list[str]:
    """Returns the key and reason of the first rows whose text is not JSON."""
    text = batch.column(name)
    if _find_fault(text, limits) is None:
        return []
    faults: list[str] = []
    for row in range(len(text)):
        reason = _find_fault(text.slice(row, 1), limits)
        if reason is not None:
            keys = batch.slice(row, 1).drop_columns(
                [each for each in batch.schema.names if each in (name, DELETED_COLUMN)]
            )
            key = ", ".join(f"{k} {v!r}" for k, v in keys.to_pylist()[0].items())
            faults.append(f"{key}: field {name!r}: {reason}")
            if len(faults) == faults_max:
                break
    return faults


def _find_fault(text: pa.Array, limits: JsonLimits) -> str | None:
    try:
        check_documents(text, limits)
    except UnfitError as error:
        return str(error)
    return None
