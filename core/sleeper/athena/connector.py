"""The connector of an instance, and the names by which Athena calls its schemas and tables.

Athena's names are all in lower case.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from sleeper.athena.requests import TableName
from sleeper.athena.times import athena_type
from sleeper.datafiles.arrow import arrow_schema
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.query.engine import QueryEngine, QueryTable
from sleeper.schema.model import Schema
from sleeper.storage.location import DataRoot
from sleeper.tables import TableIndex, TableRef

_PROCESSED = "sleeper"
RAW = "sleeper_raw"


@dataclass(frozen=True, slots=True)
class SpillBucket:
    """A bucket for spilled blocks: its name, and its root."""

    name: str
    root: DataRoot


@dataclass(frozen=True, slots=True)
class ConnectorSettings:
    """Properties `sleeper.athena.*`.

    A split reads about `split_bytes` of data files: part of one leaf, or at most
    `leaves_per_split` leaves, each of which may have many files.
    """

    hold_seconds: int = 3600
    split_bytes: int = 512 * 1024**2
    sketched_files_max: int = 50
    splits_per_page: int = 4000
    leaves_per_split: int = 100
    shows_raw: bool = True


@dataclass(frozen=True, slots=True)
class Connector:
    """The tables of an instance and the engine that reads them. One serves many requests."""

    tables: TableIndex
    open_table: Callable[[TableRef], QueryTable]
    engine: Callable[[], QueryEngine]
    spill: SpillBucket
    settings: ConnectorSettings = ConnectorSettings()

    @property
    def schema_names(self) -> tuple[str, ...]:
        """The schemas, which Athena calls databases; raw rows only if the settings allow."""
        return (_PROCESSED, RAW) if self.settings.shows_raw else (_PROCESSED,)

    def check_schema_name(self, name: str) -> str:
        """Returns the name. NotFoundError, listing the schemas, if none has it."""
        if name not in self.schema_names:
            raise NotFoundError(
                f"unknown schema {name!r} (expected {' or '.join(self.schema_names)})"
            )
        return name

    def table_names(self) -> list[str]:
        """Returns Athena's names of the tables, in order, each once."""
        return sorted({table.name.lower() for table in self.tables.list()})

    def find_table(self, name: TableName) -> TableRef:
        """Returns the table of the name, preferably the one with exactly this name.

        NotFoundError if there is none, InvalidRequestError if the name is ambiguous.
        """
        self.check_schema_name(name.schema_name)
        lower = name.table_name.lower()
        tables = [table for table in self.tables.list() if table.name.lower() == lower]
        exact = [table for table in tables if table.name == name.table_name]
        if len(tables) > 1 and not exact:
            names = " and ".join(repr(table.name) for table in tables)
            raise InvalidRequestError(
                f"Athena has only lower-case names, and {lower!r} is ambiguous: {names}"
            )
        if not tables:
            raise NotFoundError(f"no table is named {name.table_name!r}")
        return (exact or tables)[0]


def athena_schema(schema: Schema) -> pa.Schema:
    """Returns the table's columns of types that Athena has, in its types.

    InvalidRequestError if two names are one to it.
    """
    _fields_by_lower_name(schema)
    columns = [(field, athena_type(field.type)) for field in arrow_schema(schema)]
    return pa.schema([pa.field(f.name.lower(), t, f.nullable) for f, t in columns if t is not None])


def fields_by_athena_name(schema: Schema, names: Iterable[str]) -> dict[str, str]:
    """Returns field names by Athena's names. InvalidRequestError if a name has no field."""
    fields = _fields_by_lower_name(schema)
    by_athena_name = {}
    for name in names:
        if name.lower() not in fields:
            raise InvalidRequestError(
                f"unknown column {name!r} (expected one of {', '.join(fields)})"
            )
        by_athena_name[name] = fields[name.lower()]
    return by_athena_name


def _fields_by_lower_name(schema: Schema) -> dict[str, str]:
    names = [field.name for field in schema.fields]
    counts = Counter(name.lower() for name in names)
    ambiguous = [name for name in names if counts[name.lower()] > 1]
    if ambiguous:
        raise InvalidRequestError(
            "Athena has only lower-case names, and cannot distinguish " + ", ".join(ambiguous)
        )
    return {name.lower(): name for name in names}
