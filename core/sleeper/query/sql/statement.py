"""SQL over the tables of an instance, each at one version."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from datafusion import DataFrame, SessionConfig, SessionContext

from sleeper.datafiles.engine.errors import engine_errors
from sleeper.datafiles.engine.scan_count import check_files_exist
from sleeper.datafiles.engine.session import EngineSettings, create_session
from sleeper.datafiles.sidecars.file_check import damage_of_bytes
from sleeper.errors import (
    DataError,
    InvalidRequestError,
    NotFoundError,
    StateMovedOnError,
    UnavailableError,
)
from sleeper.processing.restriction import NO_RESTRICTION
from sleeper.properties.engine import QUERY_MEMORY_BYTES
from sleeper.query.engine import QueryEngine, QueryTable
from sleeper.query.hold import VersionHold
from sleeper.query.interruption import TimeLimit, read_stream
from sleeper.query.result import QueryResult, prepend_batch
from sleeper.query.run import RESTARTS, parse_schema
from sleeper.query.size import check_size
from sleeper.query.sql.as_of import NEWEST, AsOf
from sleeper.query.sql.iterated_table import IteratedRows
from sleeper.query.sql.key_predicates import Regions, find_needed_regions
from sleeper.query.sql.tables import register_table
from sleeper.query.sql.text import (
    ALLOWED,
    check_not_explain,
    check_statement,
    find_tables,
    is_explain,
    planning_errors,
    remove_folders,
    statement_errors,
)
from sleeper.query.table_plan import TablePlan, plan_table
from sleeper.retries import retry
from sleeper.schema.model import Schema
from sleeper.storage.bucket import Bucket

logger = logging.getLogger(__name__)


TableOpeners = Mapping[str, Callable[[], QueryTable]]
"""How to open each table of the instance, by name. Only those that a statement names are."""


def run_sql(
    statement: str,
    tables: TableOpeners,
    engine: QueryEngine,
    narrow: bool = True,
    limit: TimeLimit | None = None,
    as_of: AsOf = NEWEST,
) -> QueryResult:
    """The rows of one SELECT (or EXPLAIN, DESCRIBE, VALUES) in the statement's order.

    Names that are not all lower case, or have other characters than letters, digits and
    underscores, are put in double quotes. Each table is read at its newest version when
    the statement starts, or as of a transaction, under a hold. Columns that share a name get a
    number behind it. The first batch is ready when this returns. Unless `narrow` is off, files
    are left out that the statement's predicates on row keys rule out. Without a limit the
    engine's settings have one.

    InvalidRequestError for wrong SQL, a table or column that is not there or that the caller
    may not see, a version that cannot be read, and any statement that would change something or
    read anything but tables.
    """

    def attempt() -> QueryResult:
        run = StatementRun(statement, engine, limit, as_of)
        try:
            return run.start(tables, narrow)
        except BaseException:
            run.release()
            raise

    return retry(
        attempt,
        on=StateMovedOnError,
        backoff=RESTARTS,
        on_retry=lambda error, _: logger.info("statement restarts: %s", error),
    )


class StatementRun:
    """One try of a statement: its session, its files, its holds.

    After `frame`, by table: what was planned to read, and the regions that are needed (None
    for all rows). `local_files` hold the rows of tables with an iterator, until `release`.
    """

    def __init__(
        self,
        statement: str,
        engine: QueryEngine,
        limit: TimeLimit | None = None,
        as_of: AsOf = NEWEST,
    ) -> None:
        self._statement = statement
        self._engine = engine
        self._as_of = as_of
        self._files: list[str] = []
        self._start_ms = engine.clock()
        self.limit = limit or TimeLimit.from_now(engine.settings.seconds_max)
        self.holds: list[VersionHold] = []
        self.session = open_sql_session(engine.settings.engine)
        self.tables: dict[str, QueryTable] = {}
        self.plans: dict[str, TablePlan] = {}
        self.needed: dict[str, Regions] = {}
        self.local_files: dict[Path, str] = {}

    def release(self) -> None:
        self._delete_local_files()
        for hold in self.holds:
            hold.release()

    def start(self, tables: TableOpeners, narrow: bool) -> QueryResult:
        frame = self.frame(tables, narrow)
        with planning_errors(tables):
            # Arrow does not take every name that the statement gives a column.
            target = plain_schema(frame.schema())
        buckets = self._engine.settings.engine.buckets
        rows = self._with_local_files(_rows(frame, self._files, buckets, target, self.limit))
        if is_explain(frame):
            folders = self._folders()
            rows = (remove_folders(batch, folders) for batch in rows)
        first = next(rows, None)
        batches = prepend_batch(first, rows)
        return QueryResult(target, batches, self.holds, self._engine.settings.rows_max)

    def _folders(self) -> list[str]:
        roots = {table.root.url_of("") for table in self.tables.values()}
        return sorted({*roots, str(self._engine.settings.engine.spill_folder)})

    def _with_local_files(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from rows
        except DataError as error:
            raise self._damage() or error from error
        finally:
            self._delete_local_files()

    def _damage(self) -> DataError | None:
        """The error that names the first damaged file: the engine's own hardly ever does."""
        for name, plan in self.plans.items():
            for path in (path for group in plan.groups for path in group.paths):
                damage = damage_of_bytes(self.tables[name].root, path)
                if damage is not None:
                    return damage
        return None

    def _delete_local_files(self) -> None:
        for file in self.local_files:
            file.unlink(missing_ok=True)

    def frame(self, tables: TableOpeners, narrow: bool) -> DataFrame:
        """The statement over its tables, which are pinned and held from here on."""
        check_statement(self._statement)
        found = [_opened(tables, name) for name in find_tables(self._statement, tables)]
        opened = [table for table in found if table is not None]
        versions = self._versions(opened, tables)
        pinned = [self._pin(table, versions.get(table.name)) for table in opened]
        if narrow:
            self.needed = self._regions(pinned, tables)
        for each in pinned:
            self.plans[each.table.name] = self._plan(each)
        size = sum(plan.bytes for plan in self.plans.values())
        check_size(size, self._engine.settings.bytes_max)
        for each in pinned:
            name = each.table.name
            plan = self.plans[name]
            restriction = each.table.restriction
            if plan.processing.iterator is None and restriction.iterator is None:
                self._verify(each.table, plan)
                self._files += register_table(self.session, each.table, plan, each.now_ms)
            else:
                rows = IteratedRows(each.table, plan, self.needed.get(name), each.now_ms)
                file = rows.write(self._engine, self.limit)
                self.local_files[file] = name
                rows.register(self.session, file)
            self.tables[name] = each.table
        with planning_errors(tables):
            frame = self.session.sql_with_options(self._statement, ALLOWED)
        if any(table.restriction != NO_RESTRICTION for table in self.tables.values()):
            check_not_explain(frame)
        return frame

    def _verify(self, table: QueryTable, plan: TablePlan) -> None:
        """Holds the table's files against their checksums, if queries do so."""
        if self._engine.settings.verifies_checksums:
            for path in (path for group in plan.groups for path in group.paths):
                self.limit.check()
                self._engine.verified.verify(table.root, path)

    def _plan(self, pinned: "_Pinned") -> TablePlan:
        with pinned.table.store.reading(pinned.version) as state:
            return plan_table(pinned.schema, state, self.needed.get(pinned.table.name))

    def _versions(self, opened: list[QueryTable], tables: TableOpeners) -> dict[str, int]:
        """Of the tables that are not read at their newest version."""
        if self._as_of == NEWEST:
            return {}
        empty = [(table, _schema_of(table)) for table in opened]
        self._over_no_rows(empty, tables)
        named = [each[0].name for each in empty if self._is_named(each, empty, tables)]
        return self._as_of.versions(named)

    def _is_named(
        self, table: "_EmptyTable", empty: list["_EmptyTable"], tables: TableOpeners
    ) -> bool:
        """Whether the statement, which can be planned over all of them, needs this one."""
        try:
            self._over_no_rows([each for each in empty if each is not table], tables)
        except InvalidRequestError:
            return True
        return False

    def _regions(self, pinned: list["_Pinned"], tables: TableOpeners) -> dict[str, Regions]:
        frame = self._over_no_rows([(each.table, each.schema) for each in pinned], tables)
        return find_needed_regions(frame, {each.table.name: each.schema for each in pinned})

    def _over_no_rows(self, empty: list["_EmptyTable"], tables: TableOpeners) -> DataFrame:
        session = open_sql_session(self._engine.settings.engine)
        for table, schema in empty:
            register_table(session, table, TablePlan(schema, 0, ()), self._start_ms)
        with planning_errors(tables):
            return session.sql_with_options(self._statement, ALLOWED)

    def _pin(self, table: QueryTable, version: int | None) -> "_Pinned":
        # The time of an old version is its own: `plan_table` knows it.
        now_ms = self._start_ms if version is None else 0
        try:
            with table.store.reading(version) as state:
                schema = parse_schema(state.schema_json)
                pinned = _Pinned(table, schema, state.version, now_ms)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"table {table.name!r}: {error}") from error
        engine = self._engine
        hold = VersionHold(
            table.store,
            pinned.version,
            engine.settings.hold_seconds,
            engine.clock,
            f"sql {table.name}",
        )
        self.holds.append(hold)
        try:
            hold.take()
        except UnavailableError as error:
            # Nothing can be written there. If files are collected meanwhile, the scan says so.
            logger.warning("version %d could not be held: %s", pinned.version, error)
        return pinned


_EmptyTable = tuple[QueryTable, Schema]


@dataclass(frozen=True, slots=True)
class _Pinned:
    """A table at the version that the statement reads.

    `now_ms` is the time for its filters, unless the version is younger.
    """

    table: QueryTable
    schema: Schema
    version: int
    now_ms: int


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
    session = create_session(config, settings)
    # Where files lie is internal.
    session.deregister_udf("input_file_name")
    return session


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


def _schema_of(table: QueryTable) -> Schema:
    with table.store.reading() as state:
        return parse_schema(state.schema_json)


def _opened(tables: TableOpeners, name: str) -> QueryTable | None:
    try:
        return tables[name]()
    except NotFoundError:
        # Deleted since the names were listed; the statement fails if it really names it.
        return None


def _rows(
    frame: DataFrame,
    files: list[str],
    buckets: tuple[Bucket, ...],
    target: pa.Schema,
    limit: TimeLimit,
) -> Iterator[pa.RecordBatch]:
    with statement_errors(), engine_errors(QUERY_MEMORY_BYTES.name):
        stream = frame.execute_stream()
        check_files_exist(files, buckets)
        for batch in read_stream(stream, limit):
            if batch.num_rows:
                yield pa.RecordBatch.from_arrays(
                    [c.cast(f.type) for c, f in zip(batch.columns, target, strict=True)],
                    schema=target,
                )
