"""SQL over the tables of an instance, each at one version."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from datafusion import DataFrame, SessionContext

from sleeper.datafiles.arrow import cast_text
from sleeper.datafiles.engine.errors import engine_errors
from sleeper.datafiles.engine.scan import check_files_exist
from sleeper.datafiles.sidecars.checksum import check_bytes
from sleeper.errors import (
    DataError,
    InvalidRequestError,
    NotFoundError,
    StateMovedOnError,
)
from sleeper.processing.restriction import NO_RESTRICTION, restrict_version, visible_schema
from sleeper.properties.instance import QUERY_MEMORY_BYTES
from sleeper.query.engine import QueryEngine, QueryTable
from sleeper.query.hold import VersionHold
from sleeper.query.plan import check_size
from sleeper.query.result import QueryResult, TimeLimit, prepend_batch
from sleeper.query.run import RESTARTS
from sleeper.query.sql.json_operators import mixes_json, rewrite_json
from sleeper.query.sql.needs import TableNeeds, find_needs
from sleeper.query.sql.parameters import Parameters, bind_parameters
from sleeper.query.sql.plan import TablePlan, plan_table
from sleeper.query.sql.result_types import result_types
from sleeper.query.sql.session import find_pruning, open_sql_session
from sleeper.query.sql.stream import read_stream
from sleeper.query.sql.tables import (
    NEWEST,
    AsOf,
    MergedRows,
    reads_missing_column,
    register_table,
)
from sleeper.query.sql.text import (
    ALLOWED,
    check_not_explain,
    check_statement,
    find_parameters,
    find_tables,
    is_explain,
    planning_errors,
    remove_folders,
    statement_errors,
)
from sleeper.retries import retry
from sleeper.schema.model import Schema
from sleeper.statestore.version import Version
from sleeper.storage.bucket import Bucket
from sleeper.tracing import span

logger = logging.getLogger(__name__)
_VERIFIED_BYTES_MAX = 64 * 1024**2

TableOpeners = Mapping[str, Callable[[], QueryTable]]
"""Functions that open the tables of the instance, by name, for statements that name them."""


def run_sql(
    statement: str,
    tables: TableOpeners,
    engine: QueryEngine,
    narrow: bool = True,
    limit: TimeLimit | None = None,
    as_of: AsOf = NEWEST,
    parameters: Parameters | None = None,
) -> QueryResult:
    """Returns the rows of one SELECT (or EXPLAIN, DESCRIBE, VALUES) in the statement's order.

    Names need double quotes unless they consist of lower case letters, digits and underscores.
    Each table is read under a hold, at its newest version when the statement starts or as of a
    transaction. Duplicate column names get a number as suffix. The first batch is read before
    this returns. With `narrow`, files that the statement's predicates on row keys exclude are
    not read. `limit` is by default that of the engine's settings. `parameters` are the values of
    `$name` or `$1`.

    Raises `InvalidRequestError` for invalid SQL, an unknown or hidden table or column, a version
    that cannot be read, and a statement that changes anything or reads anything but tables.
    """

    def attempt() -> QueryResult:
        run = StatementRun(statement, engine, limit, as_of, parameters)
        try:
            return run.start(tables, narrow)
        except BaseException:
            run.release()
            raise

    with span("sql") as traced:
        result = retry(
            attempt,
            on=StateMovedOnError,
            backoff=RESTARTS,
            on_retry=lambda error, _: logger.info("statement restarts: %s", error),
        )
        return result.keep_span(traced)


class StatementRun:
    """An attempt to run a statement: its session, its files, its holds.

    `frame` sets the session and, by table, the plan and the rows and columns that are needed.
    `local_files`
    contain the rows of tables of latest rows or with an iterator, until
    `release`.
    """

    def __init__(
        self,
        statement: str,
        engine: QueryEngine,
        limit: TimeLimit | None = None,
        as_of: AsOf = NEWEST,
        parameters: Parameters | None = None,
    ) -> None:
        check_statement(statement)
        values = bind_parameters(statement, parameters)
        self._statement = rewrite_json(statement, values)
        self._mixes_json = mixes_json(statement)
        left = find_parameters(self._statement)
        self._parameters = {name: values[name] for name in left}
        self._engine = engine
        self._as_of = as_of
        self._files: list[str] = []
        self._start_ms = engine.clock()
        self.limit = limit or TimeLimit.from_now(engine.settings.seconds_max)
        self.holds: list[VersionHold] = []
        self.session: SessionContext
        self.tables: dict[str, QueryTable] = {}
        self.plans: dict[str, TablePlan] = {}
        self.needs: dict[str, TableNeeds] = {}
        self.local_files: dict[Path, str] = {}

    def release(self) -> None:
        """Releases the holds and deletes the local files."""
        self._delete_local_files()
        for hold in self.holds:
            hold.release()

    def start(self, tables: TableOpeners, narrow: bool) -> QueryResult:
        """Starts the statement and returns its rows."""
        frame = self.frame(tables, narrow)
        with planning_errors(tables):
            # Arrow does not accept all names of columns.
            target = result_types(frame)
        buckets = self._engine.settings.engine.buckets
        rows = self._until_released(_stream_rows(frame, self._files, buckets, target, self.limit))
        if is_explain(frame):
            folders = self._folders()
            rows = (remove_folders(batch, folders) for batch in rows)
        first = next(rows, None)
        batches = prepend_batch(first, rows)
        return QueryResult(target, batches, self.holds, self._engine.settings.rows_max)

    def _folders(self) -> list[str]:
        roots = {table.root.url_of("") for table in self.tables.values()}
        return sorted({*roots, str(self._engine.settings.engine.spill_folder)})

    def _until_released(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from rows
        except DataError as error:
            raise self._damage() or error from error
        finally:
            self._delete_local_files()

    def _damage(self) -> DataError | None:
        """Returns an error that names the first damaged file, which the engine's rarely does."""
        for name, plan in self.plans.items():
            for path in plan.paths:
                damage = check_bytes(self.tables[name].root, path)
                if damage is not None:
                    return damage
        return None

    def _delete_local_files(self) -> None:
        for file in self.local_files:
            file.unlink(missing_ok=True)

    def frame(self, tables: TableOpeners, narrow: bool) -> DataFrame:
        """Plans the statement over its tables, and pins and holds their versions."""
        candidates = [_open_table(tables, name) for name in find_tables(self._statement, tables)]
        opened = [table for table in candidates if table is not None]
        versions = self._find_versions(opened, tables)
        pinned = [self._pin_version(table, versions.get(table.name)) for table in opened]
        self.needs = {each.table.name: TableNeeds() for each in pinned}
        if narrow:
            self.needs |= self._find_needs(pinned, tables)
        for each in pinned:
            self.plans[each.table.name] = self._plan(each)
        size = sum(plan.bytes for plan in self.plans.values())
        check_size(size, self._engine.settings.bytes_max)
        self.session = open_sql_session(
            self._engine.settings.engine,
            find_pruning(self.plans, self.needs),
            self._mixes_json,
        )
        merged = []
        for each in pinned:
            name = each.table.name
            plan = self.plans[name]
            restriction = each.table.restriction
            self._verify(each.table, plan)
            iterators = (plan.processing.iterator, restriction.iterator)
            if iterators == (None, None) and plan.schema.latest is None:
                self._files += register_table(
                    self.session,
                    each.table,
                    plan,
                    each.now_ms,
                    self._engine.key_files,
                    self.needs[name],
                )
            else:
                merged.append(MergedRows(each.table, plan, self.needs[name], each.now_ms))
            self.tables[name] = each.table
        frame = self._plan_merged(merged, tables)
        if merged and reads_missing_column(frame):
            # The plan over empty tables read fewer columns than this plan.
            self._delete_local_files()
            frame = self._plan_merged([each.with_all_columns() for each in merged], tables)
        if any(table.restriction != NO_RESTRICTION for table in self.tables.values()):
            check_not_explain(frame)
        return frame

    def _plan_merged(self, merged: list[MergedRows], tables: TableOpeners) -> DataFrame:
        """Plans the statement after it wrote and registered the tables that have to be merged."""
        for rows in merged:
            file = rows.write(self._engine, self.limit)
            self.local_files[file] = rows.table.name
            rows.register(self.session, file)
        with planning_errors(tables):
            return self.session.sql_with_options(self._statement, ALLOWED, self._parameters)

    def _verify(self, table: QueryTable, plan: TablePlan) -> None:
        """Verifies the checksums of the table's files, if the settings require it or it is cheap.

        Reading and hashing a local file takes 5 % of the time to decode all of its columns, and 30
        ms for 64 MiB, once per process.
        """
        needs, kinds = self.needs[table.name], visible_schema(table.restriction, plan.schema)
        reads_all = needs.regions is None and all(needs.reads(f.name) for f in kinds.fields)
        is_cheap = not table.root.buckets and (reads_all or plan.bytes <= _VERIFIED_BYTES_MAX)
        if is_cheap or self._engine.settings.verifies_checksums:
            for path in plan.paths:
                self.limit.check()
                self._engine.verified.verify(table.root, path)

    def _plan(self, pinned: "_Pinned") -> TablePlan:
        with pinned.table.store.reading(pinned.version) as state:
            return plan_table(pinned.schema, state, self.needs[pinned.table.name].regions)

    def _find_versions(self, opened: list[QueryTable], tables: TableOpeners) -> dict[str, Version]:
        """Returns the versions of the tables that are not read at their newest."""
        if self._as_of == NEWEST:
            return {}
        empty = [_at_version(each, self._as_of.find(each.name)) for each in opened]
        self._plan_empty(empty, tables)
        named = [each[0].name for each in empty if self._is_named(each, empty, tables)]
        return self._as_of.versions(named)

    def _is_named(
        self, table: "_EmptyTable", empty: list["_EmptyTable"], tables: TableOpeners
    ) -> bool:
        """Returns whether the statement cannot be planned without this table."""
        try:
            self._plan_empty([each for each in empty if each is not table], tables)
        except InvalidRequestError:
            return True
        return False

    def _find_needs(self, pinned: list["_Pinned"], tables: TableOpeners) -> dict[str, TableNeeds]:
        frame = self._plan_empty([(each.table, each.schema) for each in pinned], tables)
        return find_needs(frame, {each.table.name: each.schema for each in pinned})

    def _plan_empty(self, empty: list["_EmptyTable"], tables: TableOpeners) -> DataFrame:
        session = open_sql_session(self._engine.settings.engine, mixes_json=self._mixes_json)
        for table, schema in empty:
            nothing = TablePlan(schema, 0, ())
            register_table(session, table, nothing, self._start_ms, self._engine.key_files)
        with planning_errors(tables):
            return session.sql_with_options(self._statement, ALLOWED, self._parameters)

    def _pin_version(self, table: QueryTable, version: Version | None) -> "_Pinned":
        # `plan_table` returns the time of an old version.
        now_ms = self._start_ms if version is None else 0
        try:
            with table.store.reading(version) as state:
                state.check_has_rows()
                schema = state.schema
                restriction = restrict_version(table.restriction, schema, state.newest_schema)
                restricted = replace(table, restriction=restriction)
                pinned = _Pinned(restricted, schema, state.version, now_ms)
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
        hold.acquire()
        return pinned


_EmptyTable = tuple[QueryTable, Schema]


@dataclass(frozen=True, slots=True)
class _Pinned:
    """A table at the version that the statement reads.

    `now_ms` is the current time for filters, unless the version is newer.
    """

    table: QueryTable
    schema: Schema
    version: int
    now_ms: int


def _at_version(table: QueryTable, version: Version | None) -> "_EmptyTable":
    """Returns the table as of the version, or its newest one if it has no such version."""
    try:
        with table.store.reading(version) as state:
            schema = state.schema
    except InvalidRequestError:
        with table.store.reading() as state:
            schema = state.schema
    return replace(table, restriction=table.restriction_at(schema)), schema


def _open_table(tables: TableOpeners, name: str) -> QueryTable | None:
    try:
        return tables[name]()
    except NotFoundError:
        # Deleted since the names were listed. Planning fails if the statement reads it.
        return None


def _stream_rows(
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
                    [cast_text(c, f.type) for c, f in zip(batch.columns, target, strict=True)],
                    schema=target,
                )
