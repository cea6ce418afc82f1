"""Queries by key and SQL over the tables of an instance."""

from functools import partial

from sleeper.datafiles.merge.bound_iterator import TableIterators
from sleeper.instance import Instance, OpenTable
from sleeper.processing.restriction import NO_RESTRICTION, Restriction, find_restriction
from sleeper.properties.table import ITERATOR_GROUP_ROWS_MAX, QUERY_CALLERS
from sleeper.query.engine import QueryTable
from sleeper.query.interruption import TimeLimit
from sleeper.query.request import Query
from sleeper.query.result import QueryResult
from sleeper.query.run import run_query
from sleeper.query.sql.as_of import NEWEST, AsOf
from sleeper.query.sql.explain import SqlExplanation, explain_sql
from sleeper.query.sql.statement import TableOpeners, run_sql
from sleeper.schema.json import schema_from_json
from sleeper.schema.model import Schema


def open_query(
    instance: Instance,
    table_name: str,
    query: Query,
    limit: TimeLimit | None = None,
    caller: str | None = None,
) -> QueryResult:
    """Starts a query by key; its rows come as they are read.

    A caller sees what the table's properties let it see; None is the instance's owner.
    """
    table = make_query_table(instance.table(table_name), caller)
    return run_query(query, table, instance.queries.engine(), limit)


def open_sql(
    instance: Instance,
    statement: str,
    limit: TimeLimit | None = None,
    caller: str | None = None,
    as_of: AsOf = NEWEST,
) -> QueryResult:
    """Starts a SQL statement over all tables, each at its newest version or as of another.

    A caller sees of each what the table's properties let it see; None is the instance's owner.
    """
    engine = instance.queries.engine()
    return run_sql(statement, _openers(instance, caller), engine, limit=limit, as_of=as_of)


def explain_statement(instance: Instance, statement: str, as_of: AsOf = NEWEST) -> SqlExplanation:
    """Runs a SQL statement, passes over its rows, and tells what it read."""
    return explain_sql(statement, _openers(instance), instance.queries.engine(), as_of)


def read_schema(instance: Instance, table_name: str) -> Schema:
    """The table's schema as its log has it."""
    with instance.table(table_name).state.reading() as state:
        return schema_from_json(state.schema_json)


def make_query_table(table: OpenTable, caller: str | None = None) -> QueryTable:
    """The table as queries of a caller see it; None is the instance's owner.

    InvalidRequestError if the caller may not query it.
    """
    restriction = NO_RESTRICTION if caller is None else restrict_caller(table, caller)
    root = table.instance.storage.root
    return QueryTable(table.ref.name, table.state, root, table_iterators(table), restriction)


def restrict_caller(table: OpenTable, caller: str) -> Restriction:
    """What the caller may see. InvalidRequestError if that is nothing."""
    return find_restriction(table.properties().get(QUERY_CALLERS), caller, table.ref.name)


def table_iterators(table: OpenTable) -> TableIterators:
    """What runs iterators on the table's rows."""
    return TableIterators(
        table.ref.name,
        table.instance.code,
        # Only a query with an iterator reads the table's properties.
        lambda: table.properties().get(ITERATOR_GROUP_ROWS_MAX),
    )


def _openers(instance: Instance, caller: str | None = None) -> TableOpeners:
    return {
        ref.name: partial(make_query_table, OpenTable(instance, ref), caller)
        for ref in instance.tables.index.list()
    }
