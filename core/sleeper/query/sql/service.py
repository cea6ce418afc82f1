"""SQL statements over the tables of an instance."""

from functools import partial

from sleeper.instance import Instance, OpenTable
from sleeper.query.result import QueryResult, TimeLimit
from sleeper.query.service import make_query_table
from sleeper.query.sql.explain import SqlExplanation, explain_sql
from sleeper.query.sql.parameters import Parameters
from sleeper.query.sql.statement import TableOpeners, run_sql
from sleeper.query.sql.tables import NEWEST, AsOf


def open_sql(
    instance: Instance,
    statement: str,
    limit: TimeLimit | None = None,
    caller: str | None = None,
    as_of: AsOf = NEWEST,
    parameters: Parameters | None = None,
) -> QueryResult:
    """Starts a SQL statement over all tables, each at its newest version or as of another.

    `caller` is `None` for the owner of the instance; the tables' properties restrict others.
    `parameters` are the values of `$name` or `$1`.
    """
    openers, engine = _table_openers(instance, caller), instance.queries.engine()
    return run_sql(statement, openers, engine, limit=limit, as_of=as_of, parameters=parameters)


def explain_statement(
    instance: Instance,
    statement: str,
    as_of: AsOf = NEWEST,
    parameters: Parameters | None = None,
) -> SqlExplanation:
    """Runs a SQL statement, discards its rows, and returns the amounts that it read."""
    openers, engine = _table_openers(instance), instance.queries.engine()
    return explain_sql(statement, openers, engine, as_of, parameters)


def _table_openers(instance: Instance, caller: str | None = None) -> TableOpeners:
    return {
        ref.name: partial(make_query_table, OpenTable(instance, ref), caller)
        for ref in instance.tables.index.list()
    }
