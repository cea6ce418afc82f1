"""Exports to a table of PostgreSQL: `postgres://USER@HOST:PORT/DATABASE?table=SCHEMA.NAME`.

The table has a column for each key and value of the queue and `sequence`, and a unique key of the
queue's keys. It is created if it does not exist. A batch is one transaction, so that the receiver
has all of it or none.
"""

import time

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.databases.postgresql import DatabaseLogin, PostgresqlConnection, load_driver
from sleeper.databases.tls import check_tls
from sleeper.databases.url import (
    DatabaseKind,
    DatabaseUrl,
    is_database_url,
    parse_database_url,
    split_user,
)
from sleeper.errors import (
    InvalidRequestError,
    SleeperError,
    UnavailableError,
    did_you_mean,
)
from sleeper.export_queue.definition import SEQUENCE, TOMBSTONE, ExportQueue
from sleeper.export_queue.exporter import ExportBatch, RefusedExportsError
from sleeper.export_queue.exporters.options import check_options, exporter_name
from sleeper.export_queue.exporters.postgres_sql import (
    STAGING,
    ReceiverSql,
    TableName,
    parse_table_name,
    text_literal,
)
from sleeper.export_queue.rows import leave_out, newest_rows
from sleeper.instance import Instance
from sleeper.runs.secrets import read_secret
from sleeper.runs.transport import INSECURE, read_insecure
from sleeper.schema.model import PrimitiveType

_PURPOSE = "exporting to PostgreSQL"
_PRUNE_SECONDS = 3_600
_EXPECTED = "postgres://USER@HOST:PORT/DATABASE?table=NAME"
# Classes of SQLSTATE that depend on the exported values: cardinality, data, constraints, errors
# that a trigger raises. After any other error, such as a missing right, the exports wait.
_REFUSALS = ("21", "22", "23", "44", "P0")


def check(instance: Instance, queue: ExportQueue) -> None:
    """Raises InvalidRequestError for an invalid URL, option or type of a value, or no driver."""
    check_options(queue, (INSECURE,))
    PostgresExporter(instance, queue)
    load_driver(_PURPOSE)


def make(instance: Instance, queue: ExportQueue) -> "PostgresExporter":
    """Returns an exporter, which connects on first use."""
    return PostgresExporter(instance, queue)


class PostgresExporter:
    """Writes exports to a table, newest sequence wins. Connects again after an error."""

    def __init__(self, instance: Instance, queue: ExportQueue) -> None:
        self._instance = instance
        self._queue = queue
        self._url, self._user, self._table = _parse(queue)
        url = parse_database_url(self._url)
        self._where = f"{url.shown} {self._table.quoted}"
        check_tls(url, exporter_name(queue))
        self._sql = ReceiverSql(queue, self._table)
        self._connection: PostgresqlConnection | None = None
        self._pruned = float("-inf")

    def export(self, batch: ExportBatch) -> None:
        """Upserts and deletes in one transaction. RefusedExportsError for text with NUL."""
        refused = _find_nul(self._queue, batch.rows)
        newest = newest_rows(self._queue, leave_out(batch.rows, refused))
        try:
            if newest.num_rows:
                self._write(self._connected(), batch.bucket, newest)
        except BaseException:
            self.close()
            raise
        if refused:
            raise RefusedExportsError(refused)

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _write(self, connection: PostgresqlConnection, bucket: int, rows: pa.RecordBatch) -> None:
        tombstones = pc.sum(rows.column(TOMBSTONE)).as_py()
        connection.execute("BEGIN")
        # Two workers may have the same bucket if the claim of one has ended.
        _lock(connection, f"{self._queue.name}/{bucket} {self._table.quoted}")
        connection.append(STAGING, rows)
        if tombstones < rows.num_rows:
            connection.execute(self._sql.upsert())
        if tombstones:
            connection.execute(self._sql.add_tombstones())
            connection.execute(self._sql.delete_gone())
        connection.execute("COMMIT")
        if time.monotonic() - self._pruned > _PRUNE_SECONDS:
            connection.execute(self._sql.prune_tombstones())
            self._pruned = time.monotonic()

    def _connected(self) -> PostgresqlConnection:
        if self._connection is None:
            try:
                self._connection = self._connect()
                self._prepare(self._connection)
            except InvalidRequestError as error:
                # The exports are not at fault: they wait until the receiver is repaired.
                raise UnavailableError(str(error)) from error
        return self._connection

    def _connect(self) -> PostgresqlConnection:
        reference = self._queue.exporter.password
        password = None if reference is None else read_secret(self._instance, reference)
        login = DatabaseLogin(self._url, self._user, password, _PURPOSE)
        return PostgresqlConnection(login, self._make_error)

    def _prepare(self, connection: PostgresqlConnection) -> None:
        """Creates missing tables, and checks the receiver's table."""
        milliseconds = self._queue.timeout_seconds * 1_000
        for setting in (f"statement_timeout = {milliseconds}", "timezone = 'UTC'"):
            connection.execute(f"SET {setting}")
        connection.execute("BEGIN")
        # Concurrent creations of a table fail.
        _lock(connection, f"create {self._table.quoted}")
        if not self._exists(connection, self._table):
            connection.execute(self._sql.create_table())
        if not self._exists(connection, self._table.tombstones):
            connection.execute(self._sql.create_tombstones())
        connection.execute("COMMIT")
        connection.execute(self._sql.create_staging())
        self._check_columns(connection)
        # Without rows they change nothing, but fail if a type, a unique key or a right is missing.
        for statement in (self._sql.upsert(), self._sql.add_tombstones(), self._sql.delete_gone()):
            connection.execute(statement)

    def _check_columns(self, connection: PostgresqlConnection) -> None:
        columns = connection.prepare(f"SELECT * FROM {self._table.quoted}").names
        for name in (*(field.name for field in self._queue.schema.fields), SEQUENCE):
            if name not in columns:
                raise InvalidRequestError(
                    f"{self._where} has no column {name!r} (expected the keys and values of export "
                    f"queue {self._queue.name!r} and {SEQUENCE!r}){did_you_mean(name, columns)}"
                )

    @staticmethod
    def _exists(connection: PostgresqlConnection, table: TableName) -> bool:
        name = text_literal(table.quoted)
        batches = [*connection.rows(f"SELECT to_regclass({name}) IS NOT NULL AS found")]
        return bool(batches[0].column(0)[0].as_py())

    def _make_error(self, state: str | None, message: str) -> SleeperError:
        text = f"{self._where}: {message}"
        is_refusal = state is not None and state.startswith(_REFUSALS)
        return InvalidRequestError(text) if is_refusal else UnavailableError(text)


def _lock(connection: PostgresqlConnection, name: str) -> None:
    """Waits for the lock of that name, which the transaction keeps."""
    number = f"hashtextextended({text_literal(f'sleeper {name}')}, 0)"
    for _ in connection.rows(f"SELECT 1 FROM pg_advisory_xact_lock({number})"):
        pass


def _find_nul(queue: ExportQueue, rows: pa.RecordBatch) -> dict[int, str]:
    """Returns the positions of rows with text that PostgreSQL cannot store."""
    refused: dict[int, str] = {}
    for field in queue.schema.fields:
        if field.type is not PrimitiveType.STRING:
            continue
        has_nul = pc.match_substring(rows.column(field.name), "\0")
        for position in pc.indices_nonzero(pc.fill_null(has_nul, False)).to_pylist():
            reason = f"field {field.name!r} has a NUL character (expected text without it)"
            refused.setdefault(position, reason)
    return refused


def _parse(queue: ExportQueue) -> tuple[str, str | None, TableName]:
    """Returns the URL without user, password and table, the user and the table."""
    settings = queue.exporter
    target = settings.target
    text = target if is_database_url(target) else settings.text
    what = exporter_name(queue)

    def refuse(problem: str) -> InvalidRequestError:
        return InvalidRequestError(f"{what}: {problem} (expected {_EXPECTED})")

    try:
        plain, user = split_user(text)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{what}: {error}") from None
    url = parse_database_url(plain)
    if url.kind is not DatabaseKind.POSTGRESQL:
        raise refuse(f"the URL is of {url.kind.value}")
    tables = [value for name, value in url.parameters if name == "table"]
    if len(tables) != 1:
        raise refuse("the URL names no table" if not tables else "the URL names several tables")
    try:
        table = parse_table_name(tables[0])
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{what}: {error}") from None
    if url.is_insecure:
        raise refuse("the URL has the parameter insecure, which is an option")
    rest = tuple((name, value) for name, value in url.driver_parameters if name != "table")
    if read_insecure(what, queue.exporter.options):
        rest = (*rest, (INSECURE, "true"))
    return DatabaseUrl(url.kind, url.host, url.port, url.database, rest).text, user, table
