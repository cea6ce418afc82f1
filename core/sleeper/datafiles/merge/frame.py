"""The plan of a merge of inputs that may all be open at once.

Each input is registered with its sort order, so the plan is a SortPreservingMerge over scans: it
sorts no rows. The engine fills the columns of a scan by name, so a scan has the schema of its file,
and a projection above it finds the fields of a later schema by their ids. Key fields never change,
so the declared order of a file is kept.

A function that the engine calls is declared as volatile. Otherwise it would be evaluated inside the
scan, which takes longer, and perhaps more than once for a row.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc
from datafusion import DataFrame, SessionContext, lit, udf
from datafusion.expr import Expr, SortExpr

from sleeper.datafiles.arrow import JSON_MARK, arrow_type, view_schema
from sleeper.datafiles.engine.errors import engine_errors
from sleeper.datafiles.engine.expression import (
    column,
    key_order,
    merge_order,
    regions_predicate,
)
from sleeper.datafiles.engine.scan import add_barrier
from sleeper.datafiles.engine.session import engine_url, new_table_name
from sleeper.datafiles.merge.deletes import DeletedRows, OnDropped
from sleeper.datafiles.merge.first_of_key import FirstOfKey
from sleeper.datafiles.merge.processing import apply_steps
from sleeper.datafiles.merge.request import MergeInput, MergeRequest, Stored, with_hidden
from sleeper.datafiles.merge.steps import ProcessingStep
from sleeper.processing.model import Aggregation, AggregationOp, Processing
from sleeper.schema.defaults import default_value
from sleeper.schema.model import DELETED_COLUMN, NUMBER_COLUMN, Field, PrimitiveType, Schema


def merge_frame(
    request: MergeRequest, session: SessionContext, on_dropped: OnDropped = lambda _: None
) -> tuple[DataFrame, list[str]]:
    """Returns the plan of a merge without passes, and the tables registered for it.

    `on_dropped` receives numbers of rows that are deleted or replaced, from several threads. A plan
    of latest rows may be run once.
    """
    limit = request.limit if _reads_all_rows(request) else None
    order, newest_first = key_order(request.schema), merge_order(request.schema)
    names: list[str] = []
    frames: list[DataFrame] = []
    with engine_errors():
        for each in request.inputs:
            name = new_table_name()
            names.append(name)
            file_order = merge_order(request.schema, has_number=each.number is None)
            frames.append(_input_frame(request, each, session, name, file_order, on_dropped))
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.union(frame)
        if request.schema.latest is not None:
            whole = _latest_frame(whole, request, newest_first, on_dropped)
        if any(step.processing.aggregations for step in request.steps):
            # A merge before the aggregation prevents a partial aggregation per file, which
            # reduces nothing because equal keys lie in different files. The sort below is kept.
            whole = whole.sort(*order)
        if request.schema.latest is None or request.steps:
            schema, steps = (request.schema, request.steps)
            if request.numbered:
                schema, steps = with_hidden(schema, True, False), _number_groups(steps)
            whole = apply_steps(whole, schema, steps).sort(*order)
        if request.columns is not None:
            whole = whole.select(*(column(c) for c in request.columns))
        elif request.schema.latest is not None and request.stored is None:
            whole = whole.select(*(column(field.name) for field in request.schema.fields))
        if limit is not None:
            whole = whole.limit(limit)
    return whole, names


def _reads_all_rows(request: MergeRequest) -> bool:
    """Returns whether no condition selects rows of the inputs.

    With a condition, the engine must not know the limit. It would move it below the merge into the
    scans, and disregard their order: it reads only row groups all of whose rows satisfy the
    condition, if these have enough rows (apache/datafusion#24272).
    """
    is_whole = all(each.regions is None and each.deleted is None for each in request.inputs)
    return is_whole and request.schema.latest is None and not request.steps


def _input_frame(
    request: MergeRequest,
    each: MergeInput,
    session: SessionContext,
    name: str,
    order: list[SortExpr],
    on_dropped: OnDropped,
) -> DataFrame:
    """Returns the scan of an input, registered under the name, with hidden columns if needed."""
    schema = request.schema
    stored = request.stored_fields(each, each.schema_version)
    mapped = request.stored_fields(each, None)
    kinds = view_schema(stored)
    if each.rows is None:
        url = engine_url(each.url)
        session.register_parquet(name, url, schema=kinds, file_sort_order=[order])
    else:
        rows = each.rows.select(kinds.names).cast(kinds).combine_chunks().to_batches()
        session.register_record_batches(name, [rows or [pa.RecordBatch.from_pylist([], kinds)]])
    frame = map_fields(session.table(name), stored, mapped)
    if each.regions is not None and each.rows is None:
        predicate = regions_predicate(schema, each.regions)
        frame = frame if predicate is None else frame.filter(predicate)
    if each.deleted is not None:
        frame = frame.filter(undeleted_predicate(each.deleted, kinds, on_dropped))
    if each.number is not None and (request.numbered or schema.latest is not None):
        return _add_number(frame, schema, each.number)
    return frame


def _latest_frame(
    whole: DataFrame, request: MergeRequest, order: list[SortExpr], on_dropped: OnDropped
) -> DataFrame:
    """Returns the newest row of each key, with the hidden columns only if they are stored."""
    schema, stored = request.schema, request.stored
    if len(request.inputs) > 1:
        whole = _keep_latest(whole.sort(*order), schema, FirstOfKey(on_dropped), stored is not None)
    elif stored is None:
        deleted = column(DELETED_COLUMN)
        whole = whole.filter(deleted.is_null() | ~deleted)
    if stored is not None:
        return _select_stored(whole, schema, stored, on_dropped)
    return add_barrier(whole) if request.steps and len(request.inputs) > 1 else whole


def mark_json(frame: DataFrame, schema: Schema) -> DataFrame:
    """Returns the frame, whose columns of `JSONType` have Arrow's mark of JSON.

    Results of expressions on them do not.
    """
    if not any(each.type is PrimitiveType.JSON for each in schema.fields):
        return frame
    return frame.select(
        *(
            column(each.name).alias(each.name, JSON_MARK)
            if each.type is PrimitiveType.JSON
            else column(each.name)
            for each in schema.fields
        )
    )


def map_fields(frame: DataFrame, stored: Schema, schema: Schema) -> DataFrame:
    """Returns the rows of a file of the `stored` schema as rows of the schema."""
    if stored.version == schema.version:
        return frame
    by_id = {field.id: field for field in stored.fields}
    kinds = view_schema(schema)
    return frame.select(
        *(
            _mapped(by_id.get(field.id), field, kinds.field(field.name).type).alias(field.name)
            for field in schema.fields
        )
    )


def _mapped(stored: Field | None, field: Field, kind: pa.DataType) -> Expr:
    if stored is None and field.default is None:
        return lit(None).cast(kind)
    if stored is None:
        return lit(pa.scalar(default_value(field), arrow_type(field.type))).cast(kind)
    return column(stored.name) if stored.type == field.type else column(stored.name).cast(kind)


_numbers = count()


def undeleted_predicate(
    deleted: DeletedRows, kinds: pa.Schema, on_dropped: OnDropped = lambda _: None
) -> Expr:
    """Returns the predicate for the rows to keep of a scan of these types.

    `on_dropped` receives the number of deleted rows of batches, from several threads.
    """
    names = [field.name for field in deleted.schema.row_keys]
    types = [kinds.field(name).type for name in names]
    # The name identifies the function in a plan.
    name = f"keep_undeleted_{next(_numbers)}"
    keeps = udf(partial(deleted.keep, on_dropped=on_dropped), types, pa.bool_(), "volatile", name)
    return keeps(*(column(name) for name in names))


def _keep_latest(
    frame: DataFrame, schema: Schema, first: FirstOfKey, with_tombstones: bool
) -> DataFrame:
    """Keeps the first row of each key of a frame in `merge_order`, if it is no tombstone."""
    names = [field.name for field in schema.keys]
    types = [frame.schema().field(name).type for name in names]
    # One filter, because each node of a plan costs a lookup some time.
    find, of_rows = (first.find, []) if with_tombstones else (first.find_rows, [DELETED_COLUMN])
    kept = udf(find, [pa.bool_()] * len(of_rows) + types, pa.bool_(), "volatile", "first_of_key")
    columns = [column(name) for name in (*of_rows, *names)]
    return add_barrier(frame).filter(kept(*columns))


def _select_stored(
    frame: DataFrame, schema: Schema, stored: Stored, on_dropped: OnDropped
) -> DataFrame:
    """Selects the columns of a file that the rows are written to, without useless tombstones."""
    if stored.hiding_from or not stored.has_tombstones:

        def is_kept(deleted: pa.Array, numbers: pa.Array) -> pa.Array:
            kept = pc.invert(pc.fill_null(deleted, False))
            if stored.has_tombstones:
                kept = pc.or_(kept, pc.greater(numbers, stored.hiding_from))
            on_dropped(len(kept) - (pc.sum(kept).as_py() or 0))
            return kept

        kept = udf(is_kept, [pa.bool_(), pa.int64()], pa.bool_(), "volatile", "keep_tombstones")
        columns = column(DELETED_COLUMN), column(NUMBER_COLUMN)
        frame = add_barrier(frame).filter(kept(*columns))
    fields = with_hidden(schema, stored.has_numbers, stored.has_tombstones).fields
    return frame.select(*(column(field.name) for field in fields))


def _add_number(frame: DataFrame, schema: Schema, number: int) -> DataFrame:
    """Adds the number of all rows to the columns of a scan."""
    constant = lit(pa.scalar(number, pa.int64())).alias(NUMBER_COLUMN)
    hidden = [] if schema.latest is None else [column(DELETED_COLUMN)]
    return frame.select(*(column(field.name) for field in schema.fields), constant, *hidden)


def _number_groups(steps: Sequence[ProcessingStep]) -> tuple[ProcessingStep, ...]:
    """Returns the steps with the largest number of each group that they aggregate."""
    largest = Aggregation(AggregationOp.MAX, NUMBER_COLUMN)

    def number(processing: Processing) -> Processing:
        aggregations = processing.aggregations
        return replace(processing, aggregations=aggregations and (*aggregations, largest))

    return tuple(replace(step, processing=number(step.processing)) for step in steps)
