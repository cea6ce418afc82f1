"""Rows of a table of the instance, pinned at one version."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from sleeper.adapters.database_rows import fit_rows
from sleeper.adapters.definition import TableSource
from sleeper.datafiles.arrow import arrow_type
from sleeper.datafiles.casts import is_castable, is_key_castable
from sleeper.errors import InvalidRequestError, NotFoundError, StateMovedOnError, did_you_mean
from sleeper.instance import Instance, OpenTable
from sleeper.query.engine import QueryEngine
from sleeper.query.hold import VersionHold
from sleeper.query.request import Query
from sleeper.query.run import RESTARTS, run_query
from sleeper.query.service import make_query_table
from sleeper.retries import retry
from sleeper.schema.model import Schema, type_name
from sleeper.statestore.version import parse_version_text


@dataclass(frozen=True, slots=True)
class PinnedTable:
    """A table at a version that is held. `batches` are rows of the sink's schema."""

    version: int
    source: str
    batches: Iterator[pa.RecordBatch]


def check_table(instance: Instance, source: TableSource, schema: Schema) -> None:
    """Raises an error if the table or its version does not exist, or does not fit the schema."""
    _, fields = _find_version(instance.table(source.table), source)
    _check_fields(source.table, fields, schema)


@contextmanager
def pinned_table(
    instance: Instance, source: TableSource, schema: Schema, owner: str
) -> Iterator[PinnedTable]:
    """Holds the source's version and yields its rows.

    The limits of queries do not apply: a run reads all rows. InvalidRequestError if the table or
    its version does not exist, or does not fit the schema.
    """
    try:
        table = instance.table(source.table)
    except NotFoundError as error:
        raise InvalidRequestError(str(error)) from error
    engine = instance.queries.engine()
    seconds = engine.settings.hold_seconds

    def hold_version() -> tuple[int, Schema, VersionHold]:
        version, fields = _find_version(table, source)
        hold = VersionHold(table.state, version, seconds, instance.clock, owner)
        hold.acquire()
        return version, fields, hold

    # The version may expire before it is held.
    version, fields, hold = retry(hold_version, on=StateMovedOnError, backoff=RESTARTS)
    try:
        names = _check_fields(source.table, fields, schema)
        described = f"table {source.table} at version {version:,}"
        rows = _read(table, Query(columns=names, version=version), engine, schema, described)
        yield PinnedTable(version, described, rows)
    finally:
        hold.release()


def _read(
    table: OpenTable, query: Query, engine: QueryEngine, schema: Schema, where: str
) -> Iterator[pa.RecordBatch]:
    settings = replace(engine.settings, rows_max=0, seconds_max=0, bytes_max=0)
    unlimited = QueryEngine(settings, engine.clock)
    with run_query(query, make_query_table(table), unlimited, is_held=True) as result:
        for batch in result:
            if batch.num_rows:
                columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                yield fit_rows(columns, schema, where)


def _check_fields(name: str, source: Schema, sink: Schema) -> tuple[str, ...]:
    """Returns the fields to read. InvalidRequestError if one is missing or cannot fit."""
    by_name = {field.name: field for field in source.fields}
    names = []
    for field in sink.fields:
        given = by_name.get(field.name)
        if given is None:
            if field.name in sink.added_names:
                continue
            raise InvalidRequestError(
                f"table {name!r} has no field {field.name!r}, which the sink has "
                f"(expected {', '.join(each.name for each in sink.fields)})"
                f"{did_you_mean(field.name, by_name)}"
            )
        fits = is_key_castable if field in sink.keys else is_castable
        if not fits(arrow_type(given.type), field.type):
            raise InvalidRequestError(
                f"table {name!r}: field {field.name!r} is {type_name(given.type)}, which does not "
                f"fit the sink's {type_name(field.type)}"
            )
        names.append(field.name)
    return tuple(names)


def _find_version(table: OpenTable, source: TableSource) -> tuple[int, Schema]:
    """Returns the version to read and its schema. InvalidRequestError if it is not readable."""
    clock = table.instance.clock
    as_of = None if source.as_of is None else parse_version_text(source.as_of, clock)
    try:
        with table.state.reading(as_of) as state:
            return state.version, state.schema
    except InvalidRequestError as error:
        raise InvalidRequestError(f"table {source.table!r}: {error}") from error
