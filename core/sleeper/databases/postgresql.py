"""Connections to PostgreSQL through ADBC, which exchanges rows with the server as Arrow batches.

A signal cancels a running statement. Errors never contain the password.
"""

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from sleeper import DISTRIBUTION
from sleeper.databases.columns import ColumnKind, DatabaseColumn
from sleeper.databases.tls import libpq_tls
from sleeper.databases.url import parse_database_url
from sleeper.errors import InvalidRequestError, SleeperError, UnavailableError
from sleeper.runs.secrets import SECRET_FORMS

R = TypeVar("R")
MakeError = Callable[[str | None, str], SleeperError]
"""Returns the error of a failed statement from its SQLSTATE, if known, and the server's message."""

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
# Reasons of libpq for which it does not trust a server.
_UNVERIFIED = (
    "certificate verify failed",
    "does not match host name",
    "root certificate file",
    "server does not support SSL",
)
_VERIFIED = (
    "expected TLS and a certificate of a known authority, or of one in the file of parameter "
    "sslrootcert; insecure=true connects without"
)


@dataclass(frozen=True, slots=True)
class DatabaseLogin:
    """A database, and the user and password of a connection to it.

    `url` has neither user nor password. `purpose` and `alternative` are parts of the error if the
    driver is not installed.
    """

    url: str
    user: str | None
    password: str | None = field(repr=False)
    purpose: str
    alternative: str = ""


class PostgresqlConnection:
    """A connection. Every statement is a transaction of its own, except between BEGIN and COMMIT.

    InvalidRequestError if the server refuses the login, UnavailableError if it does not answer.
    """

    def __init__(self, login: DatabaseLogin, make_error: MakeError) -> None:
        self._connection = _connect(login)
        self._make_error = make_error

    def close(self) -> None:
        """Closes the connection, which ends its transaction without a change."""
        with suppress(Exception):
            self._connection.close()

    def prepare(self, statement: str) -> pa.Schema:
        """Returns the columns of a statement without running it."""
        with self._errors(), closing(self._connection.cursor()) as cursor:
            return _wait(lambda: cursor.adbc_execute_schema(statement), cursor.adbc_cancel)

    def execute(self, statement: str) -> None:
        """Runs a statement without rows."""
        with self._errors(), closing(self._connection.cursor()) as cursor:
            _wait(lambda: cursor.execute(statement), cursor.adbc_cancel)

    def append(self, table: str, rows: pa.RecordBatch) -> None:
        """Adds rows to a temporary table of the columns' names."""
        with self._errors(), closing(self._connection.cursor()) as cursor:
            options = {"mode": "append", "temporary": True}
            _wait(lambda: cursor.adbc_ingest(table, rows, **options), cursor.adbc_cancel)

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
            raise self._error(str(error), error.sqlstate) from error
        except (pa.ArrowException, OSError) as error:
            raise self._error(str(error), None) from error

    def _error(self, text: str, state: str | None) -> SleeperError:
        match = _STATE.search(text)
        return self._make_error(state or (match[1] if match else None), _shorten(text))


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


def load_driver(purpose: str, alternative: str = "") -> Any:
    """Returns the driver's module. InvalidRequestError if it is not installed."""
    try:
        from adbc_driver_postgresql import dbapi
    except ModuleNotFoundError as error:
        raise InvalidRequestError(
            f"{purpose} needs {error.name}: pip install '{DISTRIBUTION}[postgresql]'{alternative}"
        ) from error
    return dbapi


def _connect(login: DatabaseLogin) -> Any:
    dbapi = load_driver(login.purpose, login.alternative)
    import adbc_driver_manager

    try:
        return dbapi.connect(_connection_text(login), autocommit=True)
    except adbc_driver_manager.Error as error:
        problem = _connection_error(login.url, _without(str(error), login.password))
    # Outside of the handler: the driver's error might show the connection's text.
    raise problem


def _connection_text(login: DatabaseLogin) -> str:
    """Returns the connection's parameters as libpq reads them, with the password."""
    url = parse_database_url(login.url)
    given: dict[str, str | None] = {
        **_PARAMETERS,
        "dbname": url.database,
        "host": url.host or None,
        "port": None if url.port is None else str(url.port),
        "user": login.user,
        "password": login.password,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    chosen |= libpq_tls(url, url.shown)
    chosen.update(url.driver_parameters)
    return " ".join(f"{name}={_quote(value)}" for name, value in chosen.items())


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def column_of(field: pa.Field) -> DatabaseColumn:
    """Returns a column of a prepared statement."""
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


def _connection_error(url: str, text: str) -> SleeperError:
    where = parse_database_url(url).shown
    message = f"{where}: cannot connect: {_shorten(text)}"
    if "no password supplied" in text:
        message += f" (expected a password: {SECRET_FORMS})"
    is_unverified = any(reason in text for reason in _UNVERIFIED)
    if is_unverified:
        message += f" ({_VERIFIED})"
    is_refused = is_unverified or any(reason in text for reason in _REFUSED)
    return InvalidRequestError(message) if is_refused else UnavailableError(message)


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
