"""The reports on queries: those of the query service, and the reads of an SQL statement."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from sleeper.jobs.query_tracker import QueryHistory, QueryState, QueryStatus
from sleeper.reports.output import Column, ColumnKind, Listing, pluralize
from sleeper.tables import TableIndex, TableState

if TYPE_CHECKING:
    from sleeper.query.sql.explain import SqlExplanation

_COLUMNS = (
    Column("query", "Query"),
    Column("table", "Table"),
    Column("state", "State"),
    Column("rows", "Rows", ColumnKind.COUNT),
    Column("updated", "Updated", ColumnKind.TIME),
    Column("reason", "Reason"),
)
_EXPLANATION_COLUMNS = (
    Column("table", "Table"),
    Column("version", "Version", ColumnKind.COUNT),
    Column("leaves", "Leaves", ColumnKind.COUNT),
    Column("leaves_of", "of", ColumnKind.COUNT),
    Column("files", "Files", ColumnKind.COUNT),
    Column("files_of", "of", ColumnKind.COUNT),
    Column("bytes", "Bytes", ColumnKind.BYTES),
    Column("bytes_of", "of", ColumnKind.BYTES),
    Column("bytes_read", "Read", ColumnKind.BYTES),
    Column("pages", "Pages", ColumnKind.COUNT),
    Column("pages_of", "of", ColumnKind.COUNT),
)


@dataclass(frozen=True, slots=True)
class QueriesReport:
    """The latest queries, newest first, with the names of their tables.

    `is_truncated` if older queries exist.
    """

    queries: tuple[QueryStatus, ...]
    table_names: Mapping[str, str]
    is_truncated: bool = False

    def listing(self) -> Listing:
        """Returns a row per query."""
        states = Counter(query.state for query in self.queries)
        parts = ", ".join(
            f"{states[s]:,} {s.value.lower().replace('_', ' ')}" for s in QueryState if states[s]
        )
        summary = pluralize(len(self.queries), "query", "queries")
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
            note="older queries exist: see --limit" if self.is_truncated else None,
        )


@dataclass(frozen=True, slots=True)
class QueryReport:
    """A query and its subqueries."""

    query: QueryStatus
    subqueries: tuple[QueryStatus, ...]

    def listing(self) -> Listing:
        """Returns a row for the query, as subquery `-`, and a row per subquery."""
        query = self.query
        rows = pluralize(query.row_count, "row")
        subqueries = pluralize(len(self.subqueries), "subquery", "subqueries")
        return Listing(
            name="query",
            summary=f"query {query.query_id} is {query.state.value}, {rows} from {subqueries}",
            columns=(Column("subquery", "Subquery"), *_COLUMNS[2:]),
            rows=tuple(
                (each.sub_query_id, each.state.value, each.row_count, each.updated_ms, each.error)
                for each in (query, *self.subqueries)
            ),
        )


def gather_query(history: QueryHistory, query_id: str) -> QueryReport:
    """Reads a query and its subqueries. NotFoundError if the id is unknown."""
    return QueryReport(history.query(query_id), history.subqueries(query_id))


def gather_queries(
    history: QueryHistory, index: TableIndex, table_id: str | None, limit: int
) -> QueriesReport:
    """Reads the latest queries, of one table if `table_id` is given."""
    tables = index.list(TableState.DELETING) + index.list()
    queries = history.recent(limit + 1)
    return QueriesReport(
        tuple(q for q in queries[:limit] if table_id in {None, q.table_id}),
        {table.id: table.name for table in tables},
        len(queries) > limit,
    )


def list_reads(explanation: "SqlExplanation") -> Listing:
    """Lists what an SQL statement read: a row per table."""
    return Listing(
        name="explanation",
        summary=f"{pluralize(explanation.rows, 'row')} in {explanation.seconds * 1000:,.0f} ms, "
        "read from:",
        columns=_EXPLANATION_COLUMNS,
        rows=tuple(astuple(reads) for reads in explanation.reads),
    )
