"""Stages rows of a database as Parquet files, read by Spark over JDBC.

Tasks read the parts of `adapters.sql_parts` over a connection each. A task converts its rows to
the table's types and writes them to a file of its own; only the files of finished tasks count, so
a repeated task adds no row. All parts show PostgreSQL at one moment: their transactions share the
snapshot of a transaction that stays open meanwhile. MariaDB and MySQL have no such snapshot, so
only a single part is consistent there.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from sleeper.adapters.column_mapping import NO_MAPPING, ColumnMapping
from sleeper.adapters.database_rows import fit_rows
from sleeper.adapters.definition import DatabaseSource
from sleeper.adapters.mapped_rows import map_rows
from sleeper.adapters.sql_parts import plan_parts
from sleeper.databases.columns import (
    PART_COLUMN,
    POSTGRESQL_FORMATS,
    DatabaseColumn,
    check_columns,
    find_part_column,
    relation_of,
    select_bounds,
    select_rows,
)
from sleeper.databases.url import DatabaseKind, parse_database_url
from sleeper.datafiles.arrow import arrow_schema
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.schema.model import Schema
from sleeper.spark.jdbc_driver import JdbcConnection, JdbcDatabase
from sleeper.spark.session import mark_errors
from sleeper.storage.location import DataRoot

_FETCH_ROWS = 10_000
_ROW_GROUP_BYTES = 16 * 1024**2
_BATCH_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BATCH_BYTES_SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"
_MANY_PARTS_NOTE = (
    "{parts} parts of a {kind} database were read in separate transactions, so the rows may mix "
    "states of the table if it changed meanwhile (a single part is consistent)"
)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file of staged rows. `path` is relative to the root."""

    path: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StagedTable:
    """The schema of staged files, and the mapping of the database's columns."""

    schema: Schema
    mapping: ColumnMapping

    @property
    def source_schema(self) -> Schema:
        """The schema of the rows that are read."""
        return self.mapping.source_schema(self.schema)


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The staged files of one read, without empty ones. `note` is a caveat for users."""

    files: tuple[StagedFile, ...]
    note: str | None = None

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def check_database(
    session: SparkSession, source: DatabaseSource, password: str | None, schema: Schema
) -> None:
    """Connects and checks all that can be checked before a run.

    InvalidRequestError if the driver, the table or a column is missing or does not fit,
    UnavailableError if the database does not answer.
    """
    database = _open(session, source, password)
    with database.connection() as connection:
        columns = _find_columns(connection, source, schema)
        _plan(connection, source, columns, session.sparkContext.defaultParallelism)


def stage_database(
    session: SparkSession,
    source: DatabaseSource,
    password: str | None,
    schema: Schema,
    root: DataRoot,
    folder: str,
    mapping: ColumnMapping = NO_MAPPING,
) -> StagedRows:
    """Writes all rows of the source as Parquet files of the table's Arrow schema below a folder.

    The files are durable on return. After an error, files may be left in the folder. Errors as of
    `check_database`, and InvalidRequestError for a row that does not fit.
    """
    # A new session, because its settings must not affect other users of this one.
    own = session.newSession()
    own.conf.set(_BATCH_SETTING, str(min(source.fetch_rows or _FETCH_ROWS, _FETCH_ROWS)))
    own.conf.set(_BATCH_BYTES_SETTING, str(_ROW_GROUP_BYTES))
    database, target = _open(own, source, password), StagedTable(schema, mapping)
    schema = target.source_schema
    with ExitStack() as stack:
        connection = stack.enter_context(database.connection())
        snapshot = _begin(connection, has_parts=source.partition_column is not None)
        columns = _find_columns(connection, source, schema)
        parts = _plan(connection, source, columns, session.sparkContext.defaultParallelism)
        rows = _read(database, source, columns, schema, parts, snapshot)
        write = _writer(target, root, folder, database.where)
        with _snapshot_errors(connection, snapshot), database.errors():
            texts = rows.mapInArrow(write, "text string").collect()
    files = [StagedFile(**json.loads(row[0])) for row in texts]
    note = None
    if len(parts) > 1 and database.kind is not DatabaseKind.POSTGRESQL:
        note = _MANY_PARTS_NOTE.format(parts=len(parts), kind=database.kind.value)
    return StagedRows(tuple(files), note)


def _open(session: SparkSession, source: DatabaseSource, password: str | None) -> JdbcDatabase:
    database = JdbcDatabase(
        session,
        parse_database_url(source.url),
        source.user,
        password,
        source.describe(),
        source.timeout_seconds,
    )
    database.load_driver()
    return database


def _find_columns(
    connection: JdbcConnection, source: DatabaseSource, schema: Schema
) -> list[DatabaseColumn]:
    database = connection.database
    columns = connection.columns(relation_of(source.table, source.query))
    check_columns(columns, schema, database.kind, database.where)
    return columns


def _plan(
    connection: JdbcConnection,
    source: DatabaseSource,
    columns: Sequence[DatabaseColumn],
    parallelism: int,
) -> tuple[str, ...]:
    """Returns a condition for each part, none for a single part."""
    if source.partition_column is None:
        return ()
    database = connection.database
    column = find_part_column(columns, source.partition_column, database.where)
    actual: tuple[str | None, ...] = (None, None)
    if source.lower is None or source.upper is None:
        relation = relation_of(source.table, source.query)
        actual = connection.query(select_bounds(relation, column.name, database.kind))[0]
    return plan_parts(
        column,
        (source.lower, source.upper),
        (actual[0], actual[1]),
        source.partitions or parallelism,
        database.where,
    )


def _begin(connection: JdbcConnection, *, has_parts: bool) -> str | None:
    """Sets up the connection. Returns the snapshot that transactions of parts share, if any."""
    if connection.database.kind is not DatabaseKind.POSTGRESQL:
        connection.run(_utc_statement(connection.database))
        return None
    if not has_parts:
        return None
    connection.run(
        "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
        *POSTGRESQL_FORMATS,
        # The transaction is idle while the tasks read.
        "SET LOCAL idle_in_transaction_session_timeout = 0",
    )
    return connection.query("SELECT pg_export_snapshot()")[0][0]


@contextmanager
def _snapshot_errors(connection: JdbcConnection, snapshot: str | None) -> Iterator[None]:
    """Converts errors of a snapshot whose connection broke: the database calls it unknown."""
    try:
        yield
    except InvalidRequestError as error:
        if snapshot is None or connection.is_open():
            raise
        raise UnavailableError(
            f"{connection.database.where}: the connection that keeps the moment of all parts broke"
        ) from error


def _utc_statement(database: JdbcDatabase) -> str:
    limit = ""
    if database.timeout_seconds and database.kind is DatabaseKind.MARIADB:
        limit = f", max_statement_time = {database.timeout_seconds}"
    return f"SET time_zone = '+00:00'{limit}"


def _session_statement(database: JdbcDatabase, snapshot: str | None) -> str:
    """Returns the statement with which each task sets up its connection."""
    if database.kind is not DatabaseKind.POSTGRESQL:
        return _utc_statement(database)
    statements = ["SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"]
    if snapshot is not None:
        statements.append(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
    statements.extend(POSTGRESQL_FORMATS)
    if database.timeout_seconds:
        statements.append(f"SET LOCAL statement_timeout = '{database.timeout_seconds}s'")
    return "; ".join(statements)


def _read(
    database: JdbcDatabase,
    source: DatabaseSource,
    columns: Sequence[DatabaseColumn],
    schema: Schema,
    parts: Sequence[str],
    snapshot: str | None,
) -> DataFrame:
    relation = relation_of(source.table, source.query)
    part_column = source.partition_column if parts else None
    text = select_rows(relation, columns, schema, database.kind, part_column)
    reader = database.session.read.options(
        driver=database.class_name,
        fetchsize=source.fetch_rows or _FETCH_ROWS,
        sessionInitStatement=_session_statement(database, snapshot),
    )
    with database.errors():
        rows = reader.jdbc(
            database.jdbc_url,
            f"({text}) AS source",
            predicates=list(parts) or ["1 = 1"],
            properties=database.properties(),
        )
        return rows.drop(PART_COLUMN)


def _writer(
    target: StagedTable, root: DataRoot, folder: str, where: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for `mapInArrow` that writes a file and yields a description of it."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with mark_errors((root,)):
            texts = [json.dumps(each) for each in _write_part(batches, target, root, folder, where)]
            yield pa.RecordBatch.from_pydict({"text": pa.array(texts, pa.string())})

    return write


def _write_part(
    batches: Iterator[pa.RecordBatch],
    target: StagedTable,
    root: DataRoot,
    folder: str,
    where: str,
) -> Iterator[dict[str, object]]:
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return
    path = f"{folder}/{uuid.uuid4().hex}.parquet"
    rows = 0
    with root.sink(path) as sink:
        with pq.ParquetWriter(sink, arrow_schema(target.schema)) as writer:
            fitted = _fitted(first, filled, target.source_schema, where)
            for group in _row_groups(map_rows(target.mapping, fitted, target.schema)):
                rows += group.num_rows
                writer.write_table(group)
        size_bytes = sink.tell()
    yield {"path": path, "rows": rows, "size_bytes": size_bytes}


def _fitted(
    first: pa.RecordBatch, rest: Iterator[pa.RecordBatch], schema: Schema, where: str
) -> Iterator[pa.RecordBatch]:
    fields = [field.name for field in schema.fields]
    batch: pa.RecordBatch | None = first
    while batch is not None:
        columns = {
            fields[int(name.removeprefix("c"))]: batch.column(name) for name in batch.schema.names
        }
        yield fit_rows(columns, schema, where)
        batch = next(rest, None)


def _row_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        gathered.append(batch)
        if sum(each.nbytes for each in gathered) >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered = []
    if gathered:
        yield pa.Table.from_batches(gathered)
