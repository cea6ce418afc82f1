"""Reads a split: rows of its region at its version that meet the constraints."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.athena.connector import Connector
from sleeper.athena.constraints import (
    AllOrNoneValueSet,
    EquatableValueSet,
    SortedRangeSet,
    ValueRange,
    ValueSet,
)
from sleeper.athena.key_ranges import key_regions
from sleeper.athena.names import RAW, check_schema_name, fields_named
from sleeper.athena.requests import ReadRecordsRequest
from sleeper.athena.responses import ReadRecordsResponse, RemoteReadRecordsResponse
from sleeper.athena.spill import Blocks
from sleeper.athena.split import Split
from sleeper.athena.splits import check_version_is_kept, named_by_field
from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.partitions.json import region_from_json
from sleeper.processing.restriction import visible_schema
from sleeper.query.engine import QueryTable
from sleeper.query.request import Query
from sleeper.query.run import run_query
from sleeper.schema.model import Schema
from sleeper.statestore.transactions.holds import RenewHold
from sleeper.tables.table_index import find_table


def rows_within(batch: pa.RecordBatch, constraints: Mapping[str, ValueSet]) -> pa.RecordBatch:
    """The rows that meet all constraints, which are by name of the batch's columns."""
    masks = [column_mask(name, batch.column(name), each) for name, each in constraints.items()]
    return batch.filter(reduce(pc.and_, masks)) if masks else batch


def column_mask(name: str, column: pa.Array, values: ValueSet) -> pa.Array:
    """For each value, null included, whether the set lets it through.

    Lists and maps are told apart from null and nothing more, as in Athena's own SDK. A NaN
    is greater than every number, again as there.
    """
    try:
        let_through = _mask(column, values)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidRequestError(
            f"the constraint of column {name!r} does not fit its type {column.type}: {error}"
        ) from error
    return pc.if_else(pc.is_null(column), values.null_allowed, let_through)


def _mask(column: pa.Array, values: ValueSet) -> Any:
    match values:
        case AllOrNoneValueSet(is_all):
            return is_all
        case _ if pa.types.is_nested(column.type):
            return True
        case EquatableValueSet(listed, is_white_list):
            among = _among(column, listed.cast(column.type))
            return among if is_white_list else pc.invert(among)
        case SortedRangeSet(ranges):
            return _in_ranges(column, ranges)


def _in_ranges(column: pa.Array, ranges: Iterable[ValueRange]) -> Any:
    singles = [each.single for each in ranges if each.single is not None]
    masks = [_in_range(column, each) for each in ranges if each.single is None]
    if singles:
        kind = column.type
        masks.append(_among(column, pa.array([s.cast(kind).as_py() for s in singles], kind)))
    return reduce(pc.or_, masks) if masks else False


def _among(column: pa.Array, values: pa.Array) -> Any:
    if pa.types.is_floating(column.type):
        # A lookup tells -0.0 from 0.0, a comparison does not.
        equal = [pc.equal(column, value) for value in values if value.is_valid]
        return reduce(pc.or_, equal) if equal else False
    return pc.is_in(column, value_set=values)


def _in_range(column: pa.Array, within: ValueRange) -> Any:
    mask = pc.is_valid(column)
    low, high = within.low.value, within.high.value
    if low is not None:
        above = pc.greater_equal if within.includes_low else pc.greater
        mask = pc.and_(mask, above(column, low.cast(column.type)))
    if high is not None:
        below = pc.less_equal if within.includes_high else pc.less
        return pc.and_(mask, below(column, high.cast(column.type)))
    return pc.or_(mask, pc.is_nan(column)) if pa.types.is_floating(column.type) else mask


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Reading:
    """A query, and what is done with its rows: these constraints, these columns of it."""

    query: Query
    remaining: Mapping[str, ValueSet]
    columns: tuple[str, ...]
    limit: int | None


def read_records(
    request: ReadRecordsRequest, connector: Connector
) -> ReadRecordsResponse | RemoteReadRecordsResponse:
    """The split's rows, in the answer or spilled.

    Constraints on row key fields choose what is read. All others are applied to what comes
    out of the table's filters, aggregations and iterator. StateMovedOnError if the split's
    version is not kept any more.
    """
    split = request.split
    check_schema_name(request.table.schema_name, connector)
    if split.spill.bucket != connector.spill.name:
        raise InvalidRequestError(
            f"the split would spill to bucket {split.spill.bucket!r}, not to "
            f"{connector.spill.name!r} as this connector does"
        )
    table = connector.open_table(find_table(connector.tables, None, split.table_id))
    schema = _schema_at(table, split, connector)
    blocks = Blocks(
        request.schema,
        split,
        connector.spill,
        request.block_bytes_max,
        request.inline_bytes_max,
    )
    for batch in _rows(table, _reading(request, schema), connector):
        blocks.add(_as_asked(batch, request.schema))
    inline = blocks.finish()
    if inline is not None:
        return ReadRecordsResponse(request.asked.catalog, inline)
    return RemoteReadRecordsResponse(
        request.asked.catalog, request.schema, blocks.spilled, split.encryption_key
    )


def _schema_at(table: QueryTable, split: Split, connector: Connector) -> Schema:
    """The schema that readers see; and the hold on the split's version lasts longer from now on."""
    seconds = connector.settings.hold_seconds
    with table.store.reading() as state:
        check_version_is_kept(split.version, state.oldest_version, connector)
        schema = visible_schema(table.restriction, state.schema)
        now_ms = state.moment(connector.engine().clock())
        held = [hold for hold in state.collection.holds() if hold.id == split.hold_id]
    # Whoever reads next renews; else each of thousands of splits would.
    if held and held[0].expiry_ms - now_ms < seconds * 500:
        try:
            table.store.commit_or_raise(RenewHold(split.hold_id, now_ms + seconds * 1000))
        except StateMovedOnError as error:
            logger.info("%s", error, extra={"table": table.name})
    return schema


def _reading(request: ReadRecordsRequest, schema: Schema) -> _Reading:
    summary = named_by_field(schema, request.constraints)
    within = key_regions(schema, summary, region_from_json(schema, request.split.region))
    remaining = {name: each for name, each in summary.items() if name not in within.settled}
    columns = tuple(fields_named(schema, request.schema.names).values())
    # Of no columns at all, as for a count, one is needed to tell rows by.
    needed = tuple(dict.fromkeys((*columns, *remaining))) or (schema.row_keys[0].name,)
    limit = request.constraints.limit
    query = Query(
        within.regions,
        needed,
        None if remaining else limit,
        request.split.version,
        raw=request.table.schema_name == RAW,
    )
    return _Reading(query, remaining, columns, limit)


def _rows(table: QueryTable, reading: _Reading, connector: Connector) -> Iterator[pa.RecordBatch]:
    left = reading.limit
    try:
        # The split's hold keeps the version.
        with run_query(reading.query, table, connector.engine(), held=True) as rows:
            for batch in rows:
                found = rows_within(batch, reading.remaining).select(reading.columns)
                if left is not None:
                    found = found.slice(0, left)
                    left -= found.num_rows
                yield found
                if left == 0:
                    return
    except StateMovedOnError as error:
        raise StateMovedOnError(
            f"{error}: the query's version was collected while it was read; run it again, or "
            "set sleeper.athena.hold.seconds higher"
        ) from error


def _as_asked(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns under the names, and as the types, that Athena asks for."""
    if not batch.num_columns:
        return batch
    try:
        columns = [c.cast(f.type) for c, f in zip(batch.columns, schema, strict=True)]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            f"the request asks for other types than the table's: {error}"
        ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)
