"""The definitions of adapters and their JSON.

{"name": "orders", "source": {"type": "database", "url": "postgresql://shop.example/shop",
 "table": "public.orders", "user": "reader", "password": "env:SHOP_PASSWORD"},
 "sink": {"table": "orders"}, "columns": {"id": "order_id"}, "constants": {"shop": "eu"}}
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Annotated, Any

from sleeper.adapters.column_mapping import ColumnMapping
from sleeper.databases.url import DatabaseKind, parse_database_url
from sleeper.errors import InvalidRequestError
from sleeper.jobs.event import JobKind
from sleeper.jobs.queue import QueueName
from sleeper.json_codec import Conversion, JsonCodec, Member, MismatchError, camel_case
from sleeper.options import Option, secret
from sleeper.runs.secrets import parse_secret
from sleeper.schedule import Schedule
from sleeper.statestore.version import parse_version_text
from sleeper.storage.sources import LOCAL_SCHEME
from sleeper.tables import check_table_name

QUEUE = QueueName("adapter")
ADAPTER_RUN = JobKind("adapter")
ADAPTER_NAME_LENGTH_MAX = 100
PARTITIONS_MAX = 1_000
_FETCH_ROWS_MAX = 1_000_000
TIMEOUT_SECONDS_MAX = 7 * 86_400
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{ADAPTER_NAME_LENGTH_MAX - 1}}}")


class Engine(StrEnum):
    """How a database is read: by one connection in this process, or by Spark over JDBC."""

    ADBC = "adbc"
    SPARK = "spark"


_OPTIONAL = Member(optional=True)


@dataclass(frozen=True)
class DatabaseOptions:
    """The options of a database, of users and in a definition. See `DatabaseSource`."""

    table: Annotated[
        str | None,
        Option("Database: table to read, or use --query.", "[SCHEMA.]TABLE"),
        _OPTIONAL,
    ] = None
    query: Annotated[
        str | None, Option("Database: query whose rows to read.", "SQL"), _OPTIONAL
    ] = None
    user: Annotated[str | None, Option("Database: user.", "NAME"), _OPTIONAL] = None
    password: Annotated[
        str | None, secret("Database: place from which each run reads the password"), _OPTIONAL
    ] = None
    engine: Annotated[
        str | None,
        Option(
            "Database: read over one connection (adbc), or with Spark. Default: adbc for "
            "PostgreSQL without --partition-column, else spark.",
            "adbc|spark",
        ),
        _OPTIONAL,
    ] = None
    partition_column: Annotated[
        str | None,
        Option("Database: read parts in parallel, divided by values of this column.", "COLUMN"),
        _OPTIONAL,
    ] = None
    lower: Annotated[
        str | None,
        Option(
            "Smallest value of the range that is divided. Rows below it are read too. Default: the "
            "smallest value of the column.",
            "VALUE",
        ),
        _OPTIONAL,
    ] = None
    upper: Annotated[
        str | None,
        Option(
            "Largest value of the range that is divided. Rows above it are read too. Default: the "
            "largest value of the column.",
            "VALUE",
        ),
        _OPTIONAL,
    ] = None
    partitions: Annotated[
        int | None, Option("Number of parts. Default: the processors of Spark.", "N"), _OPTIONAL
    ] = None
    fetch_rows: Annotated[
        int | None, Option("Rows per network round trip of Spark.", "N"), _OPTIONAL
    ] = None


@dataclass(frozen=True)
class _DatabaseAddress:
    url: str


# The fields of the last class come first.
@dataclass(frozen=True)
class DatabaseSource(DatabaseOptions, _DatabaseAddress):
    """All rows of a table or a query of a SQL database.

    `url` has neither user nor password. `password` is a reference, `env:NAME`, `file:PATH` or
    `secret:NAME-OR-ARN`. `table` is a name as in SQL, perhaps with its schema. Spark reads
    `partitions` parts in parallel, divided by values of `partition_column` from `lower` to `upper`,
    which are texts of SQL values and by default the column's smallest and largest. Rows outside of
    the bounds are read too. `fetch_rows` is the number of rows per network round trip, and
    `timeout_seconds` the limit of the query.
    """

    engine: Annotated[Engine | None, _OPTIONAL] = None
    timeout_seconds: Annotated[int | None, _OPTIONAL] = None

    def __post_init__(self) -> None:
        parse_database_url(self.url)
        if (self.table is None) == (self.query is None):
            given = "neither a table nor a query" if self.table is None else "a table and a query"
            raise InvalidRequestError(f"database source has {given} (expected one of them)")
        if not (self.table or self.query or "").strip():
            raise InvalidRequestError("database source: the table or query is empty")
        if self.password is not None:
            parse_secret(self.password)
        _check_number("partitions", self.partitions, PARTITIONS_MAX)
        _check_number("fetch rows", self.fetch_rows, _FETCH_ROWS_MAX)
        _check_number("timeout seconds", self.timeout_seconds, TIMEOUT_SECONDS_MAX)
        self._check_parts()

    def _check_parts(self) -> None:
        parts = {
            "a lower bound": self.lower,
            "an upper bound": self.upper,
            "partitions": self.partitions,
        }
        given = [name for name, value in parts.items() if value is not None]
        if given and self.partition_column is None:
            raise InvalidRequestError(
                f"database source has {' and '.join(given)} without a partition column"
            )
        if self.engine is Engine.ADBC and self.partition_column is not None:
            raise InvalidRequestError(
                f"partition column {self.partition_column!r}: the engine adbc reads with one "
                "connection (expected the engine spark)"
            )
        if self.engine is Engine.ADBC and self.kind is not DatabaseKind.POSTGRESQL:
            raise InvalidRequestError(
                f"engine adbc cannot read {self.kind.value} databases (expected the engine spark)"
            )
        if self.fetch_rows is not None and self.chosen_engine is Engine.ADBC:
            raise InvalidRequestError(
                f"fetch rows {self.fetch_rows} given for the engine adbc, which reads batches of "
                "16 MiB (expected the engine spark)"
            )

    @property
    def kind(self) -> DatabaseKind:
        """The kind of the database."""
        return parse_database_url(self.url).kind

    @property
    def chosen_engine(self) -> Engine:
        """The given engine; else Spark for parts, and for databases that only it can read."""
        if self.engine is not None:
            return self.engine
        is_simple = self.partition_column is None and self.kind is DatabaseKind.POSTGRESQL
        return Engine.ADBC if is_simple else Engine.SPARK

    def describe(self) -> str:
        """Returns a short text for people, such as `postgresql://host/db public.orders`."""
        url = parse_database_url(self.url)
        return f"{url.shown} {self.table or '(query)'}" + (" (insecure)" if url.is_insecure else "")


@dataclass(frozen=True, slots=True)
class FilesSource:
    """All rows of files and of the files below folders, as `sleeper ingest` reads them."""

    paths: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.paths:
            raise InvalidRequestError("files source has no paths (expected at least one)")
        if "" in self.paths:
            raise InvalidRequestError("files source has an empty path")

    def describe(self) -> str:
        """Returns a short text for people."""
        more = f" and {len(self.paths) - 1:,} more" if len(self.paths) > 1 else ""
        return f"{self.paths[0].removeprefix(LOCAL_SCHEME)}{more}"


@dataclass(frozen=True, slots=True)
class TableSource:
    """All rows of a table of the same instance.

    `as_of` is a transaction number, a time or an age as in `--as-of`; None is the newest version
    when the run begins.
    """

    table: str
    as_of: Annotated[str | None, _OPTIONAL] = None

    def __post_init__(self) -> None:
        check_table_name(self.table)
        if self.as_of is not None:
            parse_version_text(self.as_of)

    def describe(self) -> str:
        """Returns a short text for people."""
        return f"table {self.table}" + ("" if self.as_of is None else f" as of {self.as_of}")


Source = DatabaseSource | FilesSource | TableSource
_SOURCE_TYPES = {"database": DatabaseSource, "files": FilesSource, "table": TableSource}


@dataclass(frozen=True, slots=True)
class TableSink:
    """A table of the instance: a run replaces the rows of a snapshot table, and adds to others."""

    table: str

    def __post_init__(self) -> None:
        check_table_name(self.table)


def _strict_codec(cls: type[Any], *more: str) -> JsonCodec[Any]:
    members = (*more, *(camel_case(each.name) for each in fields(cls)))
    return JsonCodec(cls, camel_case, members)


_SOURCES = {name: _strict_codec(cls, "type") for name, cls in _SOURCE_TYPES.items()}
_SINK = _strict_codec(TableSink)


def _source_to_json(source: Source) -> dict[str, Any]:
    (name,) = (name for name, cls in _SOURCE_TYPES.items() if isinstance(source, cls))
    return {"type": name, **_SOURCES[name].to_json(source)}


def _to_source(raw: Any) -> Any:
    if not isinstance(raw, dict):
        raise MismatchError(raw, "an object")
    name = raw.get("type")
    if not isinstance(name, str) or name not in _SOURCES:
        raise InvalidRequestError(
            f"unknown type of source: {name!r} (expected one of {', '.join(_SOURCES)})"
        )
    return _SOURCES[name].decode(raw)


@dataclass(frozen=True, slots=True)
class Adapter:
    """A named pair of a source and a sink, which may run on a schedule.

    `columns` has the source's column of each field of the sink that is not read from the column of
    its own name, and `constants` the text of each field that is not read.
    """

    name: str
    source: Annotated[Source, Conversion(_to_source, _source_to_json)]
    sink: Annotated[TableSink, Conversion(_SINK.decode, _SINK.to_json)]
    schedule: Annotated[Schedule | None, _OPTIONAL] = None
    columns: Annotated[Mapping[str, str] | None, _OPTIONAL] = None
    constants: Annotated[Mapping[str, str] | None, _OPTIONAL] = None

    def __post_init__(self) -> None:
        check_adapter_name(self.name)
        ColumnMapping(self.columns or {}, self.constants or {})
        if isinstance(self.source, TableSource) and self.source.table == self.sink.table:
            raise InvalidRequestError(
                f"adapter {self.name!r}: table {self.sink.table!r} is both source and sink "
                "(expected two tables)"
            )

    @property
    def needs_spark(self) -> bool:
        """Whether Spark reads the source."""
        source = self.source
        return isinstance(source, DatabaseSource) and source.chosen_engine is Engine.SPARK

    @property
    def mapping(self) -> ColumnMapping:
        """The fields of the sink by the columns of the source."""
        return ColumnMapping(self.columns or {}, self.constants or {})

    @property
    def job_prefix(self) -> str:
        """The beginning of the ids of all runs' jobs. Names do not contain its last character."""
        return f"adapter-{self.name}:"

    def job_id(self, run_id: str) -> str:
        """Returns the id of a run's job in the sink."""
        return f"{self.job_prefix}{run_id}"


ADAPTERS = _strict_codec(Adapter)
"""The strict codec of stored definitions."""


def check_adapter_name(name: str) -> str:
    """Returns the name. InvalidRequestError if it is invalid: paths and job ids contain names."""
    if _NAME.fullmatch(name) is None:
        raise InvalidRequestError(
            f"adapter name {name[:40]!r} is invalid (expected 1 to {ADAPTER_NAME_LENGTH_MAX} "
            "letters, digits, '.', '-' or '_', of which the first is a letter or digit)"
        )
    return name


def _check_number(name: str, value: int | None, largest: int) -> None:
    if value is not None and not 1 <= value <= largest:
        raise InvalidRequestError(f"{name} {value:,} is out of range (expected 1 to {largest:,})")
