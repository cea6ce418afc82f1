"""Athena's names of schemas, tables and columns, which are all in lower case."""

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from sleeper.athena.connector import Connector
from sleeper.athena.requests import TableName
from sleeper.datafiles.arrow import arrow_schema
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.schema.model import Schema
from sleeper.tables.table_ref import TableRef

_PROCESSED = "sleeper"
RAW = "sleeper_raw"


def schema_names(connector: Connector) -> tuple[str, ...]:
    """What Athena calls databases. Raw rows are one only if the settings show them."""
    return (_PROCESSED, RAW) if connector.settings.shows_raw else (_PROCESSED,)


def check_schema_name(name: str, connector: Connector) -> str:
    """The name, if it is one of the connector's. NotFoundError names those there are."""
    names = schema_names(connector)
    if name not in names:
        raise NotFoundError(f"no schema {name!r}: there is {' and '.join(names)}")
    return name


def table_names(tables: Iterable[TableRef]) -> list[str]:
    """The tables as Athena lists them: in order, each name once."""
    return sorted({table.name.lower() for table in tables})


def find_named(connector: Connector, name: TableName) -> TableRef:
    """The table that Athena means. One that is called exactly so comes before all others.

    NotFoundError if there is none, InvalidRequestError if it might be one of several.
    """
    check_schema_name(name.schema_name, connector)
    wanted = name.table_name.lower()
    found = [table for table in connector.tables.list() if table.name.lower() == wanted]
    exact = [table for table in found if table.name == name.table_name]
    if len(found) > 1 and not exact:
        names = " and ".join(repr(table.name) for table in found)
        raise InvalidRequestError(
            f"Athena knows names in lower case only, and {wanted!r} may be {names}"
        )
    if not found:
        raise NotFoundError(f"no table is called {name.table_name!r}")
    return (exact or found)[0]


def athena_schema(schema: Schema) -> pa.Schema:
    """The table's columns for Athena. InvalidRequestError if two are one to it."""
    by_lower_name(schema)
    return pa.schema([field.with_name(field.name.lower()) for field in arrow_schema(schema)])


def by_lower_name(schema: Schema) -> dict[str, str]:
    """The fields' names by Athena's. InvalidRequestError if two are one to it."""
    names = [field.name for field in schema.fields]
    counted = Counter(name.lower() for name in names)
    doubled = [name for name in names if counted[name.lower()] > 1]
    if doubled:
        raise InvalidRequestError(
            f"Athena knows names in lower case only, and cannot tell {', '.join(doubled)} apart"
        )
    return {name.lower(): name for name in names}


def fields_named(schema: Schema, names: Iterable[str]) -> dict[str, str]:
    """Athena's names with the fields that they mean; InvalidRequestError if one means none."""
    known = by_lower_name(schema)
    names = tuple(names)
    for name in names:
        if name.lower() not in known:
            raise InvalidRequestError(f"no column {name!r}: there are {', '.join(known)}")
    return {name: known[name.lower()] for name in names}
