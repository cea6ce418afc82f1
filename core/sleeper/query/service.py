"""Queries by key over the tables of an instance."""

from functools import partial

from sleeper.datafiles.merge.steps import TableIterators
from sleeper.instance import Instance, OpenTable
from sleeper.processing.restriction import NO_RESTRICTION, Restriction, find_restriction
from sleeper.properties.table import ITERATOR_GROUP_ROWS_MAX, QUERY_CALLERS
from sleeper.query.engine import QueryTable
from sleeper.query.lookups import is_lookup, open_lookup
from sleeper.query.request import Query
from sleeper.query.result import QueryResult, TimeLimit
from sleeper.query.run import run_query
from sleeper.schema.model import Schema
from sleeper.statestore.version import Version


def open_query(
    instance: Instance,
    table_name: str,
    query: Query,
    limit: TimeLimit | None = None,
    caller: str | None = None,
) -> QueryResult:
    """Starts a query by key.

    `caller` is `None` for the owner of the instance; the table's properties restrict others.
    """
    engine = instance.queries.engine()
    open_table = partial(_open_table, instance, table_name, caller)
    if is_lookup(query):
        return open_lookup(query, (table_name, caller), open_table, engine, limit)
    return run_query(query, open_table(), engine, limit)


def _open_table(instance: Instance, table_name: str, caller: str | None) -> QueryTable:
    return make_query_table(instance.table(table_name), caller)


def read_schema(instance: Instance, table_name: str, version: Version | None = None) -> Schema:
    """Returns the schema of a table at a version, by default the newest."""
    with instance.table(table_name).state.reading(version) as state:
        return state.schema


def make_query_table(table: OpenTable, caller: str | None = None) -> QueryTable:
    """Returns the table with the restriction of a caller, `None` for the owner of the instance.

    Raises `InvalidRequestError` if the caller may not query it.
    """
    restriction = NO_RESTRICTION if caller is None else restrict_caller(table, caller)
    root = table.instance.storage.root
    return QueryTable(table.ref.name, table.state, root, table_iterators(table), restriction)


def restrict_caller(table: OpenTable, caller: str) -> Restriction:
    """Returns the restriction of a caller. InvalidRequestError if it may not query the table."""
    return find_restriction(table.properties().get(QUERY_CALLERS), caller, table.ref.name)


def table_iterators(table: OpenTable) -> TableIterators:
    """Returns the iterators of a table."""
    return TableIterators(
        table.ref.name,
        table.instance.code,
        # A function, because only queries with an iterator need the table's properties.
        lambda: table.properties().get(ITERATOR_GROUP_ROWS_MAX),
    )
