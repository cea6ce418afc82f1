"""The report on queries that came as messages."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sleeper.jobs.query_tracker import QueryHistory, QueryState, QueryStatus
from sleeper.reports.output import Column, ColumnKind, Listing, counted
from sleeper.tables.table_index import TableIndex
from sleeper.tables.table_ref import TableState

_COLUMNS = (
    Column("query", "Query"),
    Column("table", "Table"),
    Column("state", "State"),
    Column("rows", "Rows", ColumnKind.COUNT),
    Column("updated", "Updated", ColumnKind.TIME),
    Column("reason", "Reason"),
)


@dataclass(frozen=True, slots=True)
class QueriesReport:
    """The latest queries, newest first, with the names of their tables."""

    queries: tuple[QueryStatus, ...]
    table_names: Mapping[str, str]
    is_cut: bool = False

    def listing(self) -> Listing:
        """A row for each query."""
        states = Counter(query.state for query in self.queries)
        parts = ", ".join(
            f"{states[s]:,} {s.value.lower().replace('_', ' ')}" for s in QueryState if states[s]
        )
        summary = counted(len(self.queries), "query", "queries")
        return Listing(
            name="queries",
            summary=f"{summary}: {parts}" if parts else summary,
            columns=_COLUMNS,
            rows=tuple(
                (
                    query.query_id,
                    self.table_names.get(query.table_id or "", query.table_id),
                    query.state.value,
                    query.row_count,
                    query.updated_ms,
                    query.error,
                )
                for query in self.queries
            ),
            note="older queries exist: see --limit" if self.is_cut else None,
        )


@dataclass(frozen=True, slots=True)
class QueryReport:
    """A query and its subqueries."""

    query: QueryStatus
    subqueries: tuple[QueryStatus, ...]

    def listing(self) -> Listing:
        """A row for the query, as the subquery `-`, and for each subquery."""
        query = self.query
        rows = counted(query.row_count, "row")
        parts = counted(len(self.subqueries), "subquery", "subqueries")
        return Listing(
            name="query",
            summary=f"query {query.query_id} is {query.state.value}, {rows} of {parts}",
            columns=(Column("subquery", "Subquery"), *_COLUMNS[2:]),
            rows=tuple(
                (each.sub_query_id, each.state.value, each.row_count, each.updated_ms, each.error)
                for each in (query, *self.subqueries)
            ),
        )


def gather_query(history: QueryHistory, query_id: str) -> QueryReport:
    """Asks the tracker. NotFoundError if it knows of no such query."""
    return QueryReport(history.query(query_id), history.subqueries(query_id))


def gather_queries(
    history: QueryHistory, index: TableIndex, table_id: str | None, limit: int
) -> QueriesReport:
    """Asks the tracker for the latest queries, and the index for the names of tables."""
    tables = index.list(TableState.DELETING) + index.list()
    queries = history.recent(limit + 1)
    return QueriesReport(
        tuple(q for q in queries[:limit] if table_id in {None, q.table_id}),
        {table.id: table.name for table in tables},
        len(queries) > limit,
    )
