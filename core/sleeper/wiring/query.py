"""Queries by key and SQL over the tables of an instance."""

from functools import partial

from sleeper.datafiles.bound_iterator import TableIterators
from sleeper.properties.table import ITERATOR_GROUP_ROWS_MAX
from sleeper.query.engine import QueryTable
from sleeper.query.explanation import SqlExplanation, explain_sql
from sleeper.query.request import Query
from sleeper.query.result import QueryResult
from sleeper.query.running import run_query
from sleeper.query.sql import TableOpeners, run_sql
from sleeper.schema.json import schema_from_json
from sleeper.schema.model import Schema
from sleeper.wiring.instance import Instance, OpenTable


def open_query(instance: Instance, table_name: str, query: Query) -> QueryResult:
    """Starts a query by key; its rows come as they are read."""
    return run_query(query, query_table(instance.table(table_name)), instance.query_engine())


def open_sql(instance: Instance, statement: str) -> QueryResult:
    """Starts a SQL statement over all tables, each at its newest version."""
    return run_sql(statement, _openers(instance), instance.query_engine())


def explain_statement(instance: Instance, statement: str) -> SqlExplanation:
    """Runs a SQL statement, passes over its rows, and tells what it read."""
    return explain_sql(statement, _openers(instance), instance.query_engine())


def schema_of(instance: Instance, table_name: str) -> Schema:
    """The table's schema as its log has it."""
    with instance.table(table_name).state.reading() as state:
        return schema_from_json(state.schema_json)


def query_table(table: OpenTable) -> QueryTable:
    """The table as queries see it."""
    return QueryTable(table.ref.name, table.state, table.instance.root, iterators_of(table))


def iterators_of(table: OpenTable) -> TableIterators:
    """What runs iterators on the table's rows."""
    return TableIterators(
        table.ref.name,
        table.instance.code,
        # Only a query with an iterator reads the table's properties.
        lambda: table.properties().get(ITERATOR_GROUP_ROWS_MAX),
    )


def _openers(instance: Instance) -> TableOpeners:
    return {
        ref.name: partial(query_table, OpenTable(instance, ref)) for ref in instance.tables.list()
    }
