"""Reads PostgreSQL through ADBC: one connection, one transaction, batches of bounded size.

A read of all rows is one SELECT in a transaction that shows the database at one moment. The driver
copies rows in binary form to Arrow, 16 MiB at a time.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial

import pyarrow as pa

from sleeper.adapters.database_rows import fit_rows
from sleeper.adapters.definition import DatabaseSource
from sleeper.databases.columns import (
    POSTGRESQL_FORMATS,
    DatabaseColumn,
    check_columns,
    relation_of,
    select_rows,
)
from sleeper.databases.errors import database_error
from sleeper.databases.postgresql import DatabaseLogin, PostgresqlConnection, column_of
from sleeper.databases.url import DatabaseKind
from sleeper.schema.model import Schema


def check_database(source: DatabaseSource, password: str | None, schema: Schema) -> None:
    """Raises an error if the database cannot be reached, or the source does not fit the schema."""
    with _connected(source, password) as reader:
        columns = _columns(reader, source)
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
        columns = _columns(reader, source)
        check_columns(columns, schema, DatabaseKind.POSTGRESQL, where)
        present = {column.name for column in columns}
        names = {
            f"c{number}": field.name
            for number, field in enumerate(schema.fields)
            if field.name in present
        }
        for batch in reader.rows(_statement(source, columns, schema)):
            arrays = zip(batch.schema.names, batch.columns, strict=True)
            if batch.num_rows:
                yield fit_rows({names[name]: array for name, array in arrays}, schema, where)


def _statement(source: DatabaseSource, columns: list[DatabaseColumn], schema: Schema) -> str:
    relation = relation_of(source.table, source.query)
    return select_rows(relation, columns, schema, DatabaseKind.POSTGRESQL)


@contextmanager
def _connected(source: DatabaseSource, password: str | None) -> Iterator[PostgresqlConnection]:
    """Yields a connection in a read-only transaction."""
    login = DatabaseLogin(
        source.url, source.user, password, "reading PostgreSQL", " (or the engine spark)"
    )
    reader = PostgresqlConnection(login, partial(database_error, source.describe()))
    try:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        for statement in POSTGRESQL_FORMATS:
            reader.execute(statement)
        if source.timeout_seconds is not None:
            reader.execute(f"SET LOCAL statement_timeout = '{source.timeout_seconds}s'")
        yield reader
    finally:
        reader.close()


def _columns(reader: PostgresqlConnection, source: DatabaseSource) -> list[DatabaseColumn]:
    """Returns the columns of the table or query."""
    relation = relation_of(source.table, source.query)
    return [column_of(field) for field in reader.prepare(f"SELECT * FROM {relation}")]
