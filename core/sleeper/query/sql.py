"""SQL over the tables of an instance, each at one version."""

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa
from datafusion import DataFrame, RuntimeEnvBuilder, SessionConfig, SessionContext

from sleeper.datafiles.session import EngineSettings, check_present, engine_errors
from sleeper.errors import NotFoundError, StateMovedOnError
from sleeper.query.engine import QueryEngine, QueryTable
from sleeper.query.hold import VersionHold
from sleeper.query.result import QueryResult, with_first
from sleeper.query.running import parsed_schema
from sleeper.query.sql_tables import register_table
from sleeper.query.sql_text import ALLOWED, errors_of_statement, planning_errors, tables_in
from sleeper.query.table_planning import TablePlan, plan_table

logger = logging.getLogger(__name__)

_ATTEMPTS_MAX = 5

TableOpeners = Mapping[str, Callable[[], QueryTable]]
"""How to open each table of the instance, by name. Only those that a statement names are."""


def run_sql(statement: str, tables: TableOpeners, engine: QueryEngine) -> QueryResult:
    """The rows of one SELECT (or EXPLAIN, DESCRIBE, VALUES) in the statement's order.

    Names that are not all lower case, or have other characters than letters, digits and
    underscores, are put in double quotes. Each table is read at its newest version when
    the statement starts, under a hold. Columns that share a name get a number behind it.
    The first batch is ready when this returns.

    InvalidRequestError for wrong SQL, a table or column that is not there, and any
    statement that would change something or read anything but tables.
    """
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        run = _Run(statement, engine)
        try:
            return run.start(tables)
        except BaseException as error:
            run.close()
            for hold in run.holds:
                hold.release()
            if not isinstance(error, StateMovedOnError) or attempt == _ATTEMPTS_MAX:
                raise
            logger.info("statement starts again: %s", error)
    raise AssertionError


class _Run:
    """One try of a statement: its session, its links to files, its holds."""

    def __init__(self, statement: str, engine: QueryEngine) -> None:
        self._statement = statement
        self._engine = engine
        self._folder = Path(mkdtemp(prefix="sql-", dir=engine.settings.engine.spill_folder))
        self.holds: list[VersionHold] = []

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self, tables: TableOpeners) -> QueryResult:
        session = open_sql_session(self._engine.settings.engine)
        files: list[str] = []
        for name in tables_in(self._statement, tables):
            table = _opened(tables, name)
            if table is not None:
                plan = self._pin(table)
                files += register_table(session, table, plan, self._folder)
        with planning_errors(tables):
            frame = session.sql_with_options(self._statement, ALLOWED)
        target = plain_schema(frame.schema())
        rows = _rows(frame, files, target)
        first = next(rows, None)
        batches = with_first(first, rows)
        return QueryResult(target, batches, self.holds, self._engine.settings.rows_max, self.close)

    def _pin(self, table: QueryTable) -> TablePlan:
        with table.store.reading() as state:
            plan = plan_table(parsed_schema(state.schema_json), state)
        engine = self._engine
        hold = VersionHold(
            table.store,
            plan.version,
            engine.settings.hold_seconds,
            engine.clock,
            f"sql {table.name}",
        )
        self.holds.append(hold)
        hold.take()
        return plan


def open_sql_session(settings: EngineSettings) -> SessionContext:
    """A session for one statement, with a memory pool of its own."""
    config = (
        SessionConfig()
        .with_target_partitions(settings.threads)
        .with_information_schema(False)
        .set("datafusion.execution.parquet.pushdown_filters", "true")
        # What a session gathers of its files' statistics outlives it: half a megabyte a
        # file, statement after statement.
        .set("datafusion.execution.collect_statistics", "false")
    )
    runtime = (
        RuntimeEnvBuilder()
        .with_disk_manager_specified(str(settings.spill_folder))
        .with_fair_spill_pool(settings.memory_bytes)
    )
    return SessionContext(config, runtime)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with views as plain text and bytes, and every name once."""
    seen: set[str] = set()
    fields = []
    for field in schema:
        name, number = field.name, 1
        while name in seen:
            number += 1
            name = f"{field.name}_{number}"
        seen.add(name)
        fields.append(pa.field(name, _plain_type(field.type), field.nullable))
    return pa.schema(fields)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    return kind


def _opened(tables: TableOpeners, name: str) -> QueryTable | None:
    try:
        return tables[name]()
    except NotFoundError:
        # Deleted since the names were listed; the statement fails if it really names it.
        return None


def _rows(frame: DataFrame, files: list[str], target: pa.Schema) -> Iterator[pa.RecordBatch]:
    with errors_of_statement(), engine_errors():
        stream = frame.execute_stream()
        check_present(files)
        for each in stream:
            batch = each.to_pyarrow()
            if batch.num_rows:
                yield pa.RecordBatch.from_arrays(
                    [c.cast(f.type) for c, f in zip(batch.columns, target, strict=True)],
                    schema=target,
                )
