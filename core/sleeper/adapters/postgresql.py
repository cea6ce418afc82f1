"""Reads PostgreSQL through ADBC: one connection, one transaction, batches of bounded size.

A read of all rows is one SELECT in a transaction that shows the database at one moment. The driver
copies rows in binary form to Arrow, 16 MiB at a time. Errors never contain the password.
"""

import re
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from typing import Any, TypeVar

import pyarrow as pa

from sleeper import DISTRIBUTION
from sleeper.adapters.database_errors import database_error
from sleeper.adapters.database_rows import fit_rows
from sleeper.adapters.database_url import DatabaseKind, parse_database_url
from sleeper.adapters.definition import DatabaseSource
from sleeper.adapters.sql_columns import (
    POSTGRESQL_FORMATS,
    ColumnKind,
    DatabaseColumn,
    check_columns,
    relation_of,
    select_rows,
)
from sleeper.errors import InvalidRequestError, SleeperError, UnavailableError
from sleeper.runs.secrets import SECRET_FORMS
from sleeper.schema.model import Schema

R = TypeVar("R")
_CONNECT_SECONDS = 15
_PARAMETERS = {
    "application_name": "sleeper",
    "client_encoding": "UTF8",
    "connect_timeout": str(_CONNECT_SECONDS),
    # A connection that the network lost is noticed within two minutes.
    "keepalives_idle": "60",
    "keepalives_interval": "10",
    "keepalives_count": "6",
}
_TYPE = b"POSTGRESQL:type"
_KINDS = {
    **dict.fromkeys(("int2", "int4", "int8"), ColumnKind.INTEGER),
    **dict.fromkeys(("float4", "float8"), ColumnKind.FLOAT),
    # Ids are unsigned, which the driver does not know.
    **dict.fromkeys(("numeric", "oid"), ColumnKind.DECIMAL),
    "bool": ColumnKind.BOOLEAN,
    "bytea": ColumnKind.BINARY,
    **dict.fromkeys(("text", "varchar", "bpchar", "name"), ColumnKind.TEXT),
    **dict.fromkeys(("timestamp", "timestamptz"), ColumnKind.TIMESTAMP),
    "date": ColumnKind.DATE,
}
_ELEMENTS = {"int2", "int4", "int8", "float4", "float8", "bool", "text", "varchar"}
_SCALE_BITS = 11
_ADDITIONS = (
    r"^[A-Z_]+: ",
    r"^\[libpq\] ",
    r"^Failed to connect: ",
    r"fe_sendauth: ",
    r"^.*?(?:ERROR|FATAL): +",
    # A hint of libpq on a refused connection.
    r" Is the server running on that host.*",
)
_STATE = re.compile(r"SQLSTATE: ([0-9A-Z]{5})")
# Reasons for which a server refuses a connection and a retry cannot succeed. libpq reports no
# SQLSTATE for them.
_REFUSED = (
    "authentication failed",
    "does not exist",
    "no pg_hba.conf entry",
    "no password supplied",
    "permission denied",
    "invalid connection option",
    "invalid URI",
    "is not permitted to log in",
)


def check_database(source: DatabaseSource, password: str | None, schema: Schema) -> None:
    """Raises an error if the database cannot be reached, or the source does not fit the schema."""
    with _connected(source, password) as reader:
        columns = reader.columns()
        check_columns(columns, schema, DatabaseKind.POSTGRESQL, source.describe())
        # The server checks the user's rights only when it runs a statement.
        for _ in reader.rows(f"{_statement(source, columns, schema)} LIMIT 0"):
            pass


def read_database(
    source: DatabaseSource, password: str | None, schema: Schema
) -> Generator[pa.RecordBatch]:
    """Yields all rows of the source as batches of the table's schema.

    Connects when the first batch is requested. InvalidRequestError names a column that is missing
    or does not fit, and the key and value of a row that does not fit. UnavailableError if the
    database does not answer. Closing the iterator cancels the query.
    """
    where = source.describe()
    with _connected(source, password) as reader:
        columns = reader.columns()
        check_columns(columns, schema, DatabaseKind.POSTGRESQL, where)
        found = {column.name for column in columns}
        names = {
            f"c{place}": field.name
            for place, field in enumerate(schema.fields)
            if field.name in found
        }
        for batch in reader.rows(_statement(source, columns, schema)):
            arrays = zip(batch.schema.names, batch.columns, strict=True)
            if batch.num_rows:
                yield fit_rows({names[name]: array for name, array in arrays}, schema, where)


def _statement(source: DatabaseSource, columns: list[DatabaseColumn], schema: Schema) -> str:
    relation = relation_of(source.table, source.query)
    return select_rows(relation, columns, schema, DatabaseKind.POSTGRESQL)


class _Reader:
    """A connection in a read-only transaction."""

    def __init__(self, connection: Any, source: DatabaseSource) -> None:
        self._connection = connection
        self._source = source

    def columns(self) -> list[DatabaseColumn]:
        """Returns the columns of the table or query."""
        relation = relation_of(self._source.table, self._source.query)
        return [_column(field) for field in self.prepare(f"SELECT * FROM {relation}")]

    def prepare(self, statement: str) -> pa.Schema:
        """Returns the columns of a statement without running it."""
        with self._errors(), closing(self._connection.cursor()) as cursor:
            return _wait(lambda: cursor.adbc_execute_schema(statement), cursor.adbc_cancel)

    def execute(self, statement: str) -> None:
        """Runs a statement without rows."""
        with self._errors(), closing(self._connection.cursor()) as cursor:
            _wait(lambda: cursor.execute(statement), cursor.adbc_cancel)

    def rows(self, statement: str) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a query."""
        cursor = self._connection.cursor()
        reader: Any = None
        try:
            with self._errors():
                _wait(lambda: cursor.execute(statement), cursor.adbc_cancel)
                reader = _open_reader(cursor)
            batches = iter(reader)
            while (batch := self._next(batches, cursor)) is not None:
                yield batch
        except BaseException:
            with suppress(Exception):
                cursor.adbc_cancel()
            raise
        finally:
            with suppress(Exception):
                if reader is not None:
                    reader.close()
                cursor.close()

    def _next(self, batches: Iterator[pa.RecordBatch], cursor: Any) -> pa.RecordBatch | None:
        with self._errors():
            return _wait(lambda: next(batches, None), cursor.adbc_cancel)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Translates errors of the driver, and those of a stream that it does not know."""
        import adbc_driver_manager

        try:
            yield
        except adbc_driver_manager.Error as error:
            raise _statement_error(self._source, str(error), error.sqlstate) from error
        except (pa.ArrowException, OSError) as error:
            raise _statement_error(self._source, str(error), None) from error


def _open_reader(cursor: Any) -> Any:
    """Returns a reader of the results. That of `fetch_record_batch` loses the SQLSTATE of errors.

    See https://github.com/apache/arrow-adbc/issues/1523.
    """
    from adbc_driver_manager._reader import AdbcRecordBatchReader

    results = cursor.fetch_arrow()
    return AdbcRecordBatchReader._import_from_c(results.address)


def _wait(work: Callable[[], R], cancel: Callable[[], object]) -> R:
    """Returns the result of a call of the driver. A signal cancels the call.

    The call runs in a thread, because Python runs no signal handler during a call of native code.
    """
    done: Future[R] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    thread = threading.Thread(target=run, name="database", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        with suppress(Exception):
            cancel()
        thread.join()
        raise
    return done.result()


@contextmanager
def _connected(source: DatabaseSource, password: str | None) -> Iterator[_Reader]:
    connection = _connect(source, password)
    try:
        reader = _Reader(connection, source)
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        for statement in POSTGRESQL_FORMATS:
            reader.execute(statement)
        if source.timeout_seconds is not None:
            reader.execute(f"SET LOCAL statement_timeout = '{source.timeout_seconds}s'")
        yield reader
    finally:
        with suppress(Exception):
            connection.close()


def _connect(source: DatabaseSource, password: str | None) -> Any:
    try:
        import adbc_driver_manager
        from adbc_driver_postgresql import dbapi
    except ModuleNotFoundError as error:
        raise InvalidRequestError(
            f"reading PostgreSQL needs {error.name}: pip install '{DISTRIBUTION}[postgresql]' "
            "(or the engine spark)"
        ) from error
    try:
        return dbapi.connect(_connection_text(source, password), autocommit=True)
    except adbc_driver_manager.Error as error:
        problem = _connection_error(source, _without(str(error), password))
    # Outside of the handler: the driver's error might show the connection's text.
    raise problem


def _connection_text(source: DatabaseSource, password: str | None) -> str:
    """Returns the connection's parameters as libpq reads them, with the password."""
    url = parse_database_url(source.url)
    given: dict[str, str | None] = {
        **_PARAMETERS,
        "dbname": url.database,
        "host": url.host or None,
        "port": None if url.port is None else str(url.port),
        "user": source.user,
        "password": password,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    chosen.update(url.parameters)
    return " ".join(f"{name}={_quote(value)}" for name, value in chosen.items())


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _column(field: pa.Field) -> DatabaseColumn:
    metadata = field.metadata or {}
    name = metadata.get(_TYPE, b"").decode() or str(field.type)
    if name.startswith("_"):
        element = _KINDS[name[1:]] if name[1:] in _ELEMENTS else ColumnKind.OTHER
        return DatabaseColumn(field.name, f"{name[1:]}[]", ColumnKind.ARRAY, element=element)
    kind = _KINDS.get(name, ColumnKind.OTHER)
    return DatabaseColumn(field.name, name, kind, _scale(metadata))


def _scale(metadata: dict[bytes, bytes]) -> int:
    """Returns the decimal places of a numeric, which its type modifier has in its lowest bits."""
    modifier = int(metadata.get(b"POSTGRESQL:typmod", b"-1"))
    return 0 if modifier < 0 else (modifier - 4) & ((1 << _SCALE_BITS) - 1)


def _connection_error(source: DatabaseSource, text: str) -> SleeperError:
    where = parse_database_url(source.url).shown
    message = f"{where}: cannot connect: {_shorten(text)}"
    if "no password supplied" in text:
        message += f" (expected a password: {SECRET_FORMS})"
    is_refused = any(reason in text for reason in _REFUSED)
    return InvalidRequestError(message) if is_refused else UnavailableError(message)


def _statement_error(source: DatabaseSource, text: str, state: str | None) -> SleeperError:
    found = _STATE.search(text)
    return database_error(source.describe(), state or (found[1] if found else None), _shorten(text))


def _shorten(text: str) -> str:
    """Returns the server's or libpq's message without the driver's additions."""
    text = text.partition("\nQuery was:")[0].partition(". SQLSTATE:")[0]
    text = re.sub(r"\n(?=LINE [0-9]+: )", ", ", text)
    text = " ".join(line.strip() for line in text.splitlines() if line.strip(" ^"))
    for addition in _ADDITIONS:
        text = re.sub(addition, "", text, count=1)
    return text.rstrip(". ")


def _without(text: str, secret: str | None) -> str:
    return text.replace(secret, "***") if secret else text
