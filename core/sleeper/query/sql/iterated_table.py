"""A table with an iterator, its own or its caller's, for SQL: its rows come from the merge,
through a local file.

The engine may scan a table several times, and cannot wait for Python to give it rows.
"""

from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow.parquet as pq
from datafusion import SessionContext

from sleeper.datafiles.arrow import view_schema
from sleeper.datafiles.engine.errors import engine_errors
from sleeper.datafiles.engine.plan_edit import scan_files
from sleeper.processing.restriction import visible_columns, visible_schema
from sleeper.query.engine import QueryEngine, QueryTable
from sleeper.query.interruption import TimeLimit
from sleeper.query.key_filters import prune_plan
from sleeper.query.plan import plan_query
from sleeper.query.request import Query
from sleeper.query.run import make_steps, read_rows, result_schema
from sleeper.query.sql.key_predicates import Regions
from sleeper.query.sql.tables import quote_identifier
from sleeper.query.table_plan import TablePlan


@dataclass(frozen=True, slots=True)
class IteratedRows:
    """The rows of some regions of a table, None for all, that its iterators have left.

    With the columns that the table's caller may see.
    """

    table: QueryTable
    plan: TablePlan
    regions: Regions
    now_ms: int

    def write(self, engine: QueryEngine, limit: TimeLimit) -> Path:
        """Writes them to a file of their own in the spill folder, leaf after leaf."""
        plan, table = self.plan, self.table
        regions = None if self.regions is None else tuple(self.regions)
        columns = visible_columns(table.restriction, plan.schema, None)
        query = Query(regions, columns, version=plan.version)
        with table.store.reading(plan.version) as state:
            by_leaf = plan_query(query, plan.schema, state)
        by_leaf = prune_plan(by_leaf, lambda file: engine.key_filters.get(table.root, file))
        now_ms = max(self.now_ms, plan.time_ms)
        steps = make_steps(by_leaf, query, table.iterators, now_ms, table.restriction)
        kind = result_schema(plan.schema, columns)
        file = engine.settings.engine.new_spill_path(f"sql-{uuid4().hex}.parquet")
        try:
            with (
                engine_errors(),
                pq.ParquetWriter(file, kind, compression="lz4", write_statistics=False) as writer,
            ):
                for batch in read_rows(by_leaf, query, table.root, engine, kind, steps, limit):
                    writer.write_batch(batch)
        except BaseException:
            file.unlink(missing_ok=True)
            raise
        return file

    def register(self, session: SessionContext, file: Path) -> None:
        """Makes the file's rows the table's in the session."""
        visible = visible_schema(self.table.restriction, self.plan.schema)
        frame = scan_files(session, [str(file)], view_schema(visible))
        session.register_view(quote_identifier(self.table.name), frame)
