"""The reports on queries: those of the query service, and the reads of an SQL statement."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from sleeper.jobs.query_tracker import QueryHistory, QueryState, QueryStatus
from sleeper.reports.jobs import name_tables
from sleeper.reports.output import Column, ColumnKind, Listing, pluralize, summarize
from sleeper.tables import TableId, TableIndex

if TYPE_CHECKING:
    from sleeper.query.sql.explain import SqlExplanation

STATE_WORDS = {
    QueryState.QUEUED: "queued",
    QueryState.IN_PROGRESS: "running",
    QueryState.COMPLETED: "finished",
    QueryState.FAILED: "failed",
    QueryState.PARTIALLY_FAILED: "partially failed",
}
"""States as reports show them. Messages and trackers have the values of the enum."""

_STATUS_COLUMNS = (
    Column("state", "State", value=lambda query: STATE_WORDS[query.state]),
    Column("rows", "Rows", ColumnKind.COUNT, lambda query: query.row_count),
    Column("updated", "Updated", ColumnKind.TIME, lambda query: query.updated_ms),
    Column("reason", "Reason", value=lambda query: query.error),
)
_EXPLANATION_COLUMNS = (
    Column("table", "Table"),
    Column("version", "Transaction", ColumnKind.COUNT),
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


def describe_queries(
    queries: Iterable[QueryStatus], table_names: Mapping[TableId, str], note: str | None = None
) -> Listing:
    """Describes queries, with the names of their tables."""
    described = tuple(queries)
    states = Counter(query.state for query in described)
    return Listing.describe(
        "queries",
        summarize(
            pluralize(len(described), "query", "queries"),
            {word: states[state] for state, word in STATE_WORDS.items()},
        ),
        (
            Column("query", "Query", value=lambda query: query.query_id),
            Column("table", "Table", value=lambda q: table_names.get(q.table_id, q.table_id)),
            *_STATUS_COLUMNS,
        ),
        described,
        note,
    )


def list_queries(
    history: QueryHistory, index: TableIndex, table_id: TableId | None, limit: int
) -> Listing:
    """Lists the latest queries, newest first, of one table if `table_id` is given."""
    queries = history.recent(limit + 1)
    return describe_queries(
        (q for q in queries[:limit] if table_id in {None, q.table_id}),
        name_tables(index),
        "older queries exist: see --limit" if len(queries) > limit else None,
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
        return Listing.describe(
            "query",
            f"query {query.query_id} is {STATE_WORDS[query.state]}, {rows} from {subqueries}",
            (Column("subquery", "Subquery", value=lambda q: q.sub_query_id), *_STATUS_COLUMNS),
            (query, *self.subqueries),
        )


def gather_query(history: QueryHistory, query_id: str) -> QueryReport:
    """Reads a query and its subqueries. NotFoundError if the id is unknown."""
    return QueryReport(history.query(query_id), history.subqueries(query_id))


def list_reads(explanation: "SqlExplanation") -> Listing:
    """Lists what an SQL statement read: a row per table."""
    rows, milliseconds = pluralize(explanation.rows, "row"), explanation.seconds * 1000
    return Listing(
        "explanation",
        f"{rows} in {milliseconds:,.0f} ms, read from:",
        _EXPLANATION_COLUMNS,
        tuple(astuple(reads) for reads in explanation.reads),
    )
