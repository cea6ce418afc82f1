"""Registers a table's files with a session under the table's name.

Files that are read alike are one scan.
"""

from collections.abc import Sequence

import pyarrow as pa
from datafusion import DataFrame, SessionContext

from sleeper.datafiles.arrow import view_schema
from sleeper.datafiles.engine.plan_edit import scan_files
from sleeper.datafiles.engine.predicate import column, regions_predicate
from sleeper.datafiles.merge.processing import ProcessingStep, processed
from sleeper.processing.restriction import visible_schema
from sleeper.query.engine import QueryTable
from sleeper.query.table_plan import ScanGroup, TablePlan
from sleeper.schema.model import Schema


def register_table(
    session: SessionContext, table: QueryTable, plan: TablePlan, now_ms: int
) -> list[str]:
    """Registers all rows of the plan, filtered and aggregated as the table says.

    Fields that the table's caller may not see are not there for any statement. Returns the
    files. The engine moves a statement's predicates on key fields below an aggregation, and
    no others.
    """
    visible = visible_schema(table.restriction, plan.schema)
    frames = [_group_frame(session, table, plan, group) for group in plan.groups]
    if frames:
        step = ProcessingStep(plan.processing, max(now_ms, plan.time_ms))
        rows = processed(_union(frames), plan.schema, (step,))
        if visible != plan.schema:
            rows = rows.select(*(column(each.name) for each in visible.fields))
        session.register_view(quote_identifier(table.name), rows)
    else:
        session.register_record_batches(quote_identifier(table.name), [[_no_rows(visible)]])
    return [table.root.url_of(path) for group in plan.groups for path in group.paths]


def quote_identifier(name: str) -> str:
    """The name as an SQL identifier of exactly these characters."""
    return '"' + name.replace('"', '""') + '"'


def _group_frame(
    session: SessionContext, table: QueryTable, plan: TablePlan, group: ScanGroup
) -> DataFrame:
    files = [table.root.url_of(path) for path in group.paths]
    frame = scan_files(session, files, view_schema(plan.schema))
    if group.regions is None:
        return frame
    predicate = regions_predicate(plan.schema, group.regions)
    return frame if predicate is None else frame.filter(predicate)


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    # By halves: hundreds in a row would overflow the planner's stack.
    if len(frames) == 1:
        return frames[0]
    half = len(frames) // 2
    return _union(frames[:half]).union(_union(frames[half:]))


def _no_rows(schema: Schema) -> pa.RecordBatch:
    kind = view_schema(schema)
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in kind], schema=kind)
