"""Ports of queries: the tracker (docs/formats.md, "Query tracker"), WebSocket connections."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Protocol

from sleeper.errors import InvalidRequestError
from sleeper.json_codec import Member
from sleeper.lenient_json import StrictText
from sleeper.properties.instance import QUERY_MESSAGE_ROWS_MAX

WHOLE_QUERY = "-"
"""The subquery id of the query itself."""
ERROR_CHARACTERS_MAX = 4000


class QueryState(Enum):
    """What has become of a query or a subquery. A subquery is never PARTIALLY_FAILED."""

    QUEUED = "QUEUED"
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    PARTIALLY_FAILED = "PARTIALLY_FAILED"

    @property
    def is_finished(self) -> bool:
        """Whether it stays so."""
        return self not in {QueryState.QUEUED, QueryState.IN_PROGRESS}


class QueryIdTakenError(InvalidRequestError):
    """A query's id is another query's already."""

    def __init__(self, query_id: str) -> None:
        super().__init__(f"query id {query_id!r} is another query's already")


@dataclass(frozen=True, slots=True)
class QueryPin:
    """What the query is, and what it reads: kept from its first delivery on.

    `fingerprint` distinguishes its message from another query's with the same id.
    """

    fingerprint: str
    table_id: str
    version: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """A query or one of its subqueries. `row_count` counts rows of finished subqueries."""

    query_id: str
    sub_query_id: str
    state: QueryState
    row_count: int
    updated_ms: int
    error: str | None = None
    table_id: str | None = None


def state_of_query(subqueries: int, finished: int, failed: int) -> QueryState:
    """By how many subqueries there are, how many are finished, and how many of those failed."""
    if finished < subqueries:
        return QueryState.IN_PROGRESS
    if not failed:
        return QueryState.COMPLETED
    return QueryState.FAILED if failed == subqueries else QueryState.PARTIALLY_FAILED


def too_many_rows(rows_max: int) -> str:
    """Why a subquery failed that others left no rows for."""
    return (
        f"the query gives more than {rows_max} rows in all its parts, which "
        f"{QUERY_MESSAGE_ROWS_MAX.name} does not allow"
    )


class QueryTracker(Protocol):
    """What becomes of queries. Each call may come twice, at any time.

    A finished query or subquery stays as it is.
    """

    def begin(self, query_id: str, pin: QueryPin) -> QueryPin | None:
        """Records a query as queued; returns the pin that counts, which is the first one.

        None if it is finished. QueryIdTakenError if the id is another query's.
        """

    def plan(self, query_id: str, sub_query_ids: Sequence[str]) -> None:
        """Records subqueries as queued unless they are recorded, then the query in progress.

        They are the same each time. Without any the query is completed.
        """

    def start(self, query_id: str, sub_query_id: str) -> bool:
        """Records a subquery as in progress; False if it is finished."""

    def finish(
        self,
        query_id: str,
        sub_query_id: str,
        rows: int,
        error: str | None = None,
        rows_max: int = 0,
    ) -> QueryStatus | None:
        """Ends a subquery, counted once. The query's status if that ended the query.

        With a maximum other than 0, one whose rows make the query's more than that is failed.
        """

    def fail(self, query_id: str, fingerprint: str, error: str) -> QueryStatus | None:
        """Ends a query that cannot be run. Its status, or None if it is finished.

        QueryIdTakenError if the id is another query's, which stays as it is.
        """


class QueryHistory(Protocol):
    """What is known of queries."""

    def query(self, query_id: str) -> QueryStatus:
        """The query, or NotFoundError."""

    def subqueries(self, query_id: str) -> tuple[QueryStatus, ...]:
        """Its subqueries, by id."""

    def recent(self, limit: int = 100) -> tuple[QueryStatus, ...]:
        """The queries that came last, newest first."""

    def remove_before(self, time_ms: int) -> int:
        """Forgets queries that came before, and their subqueries. Returns how many queries."""


class QueryRecords(QueryTracker, QueryHistory, Protocol):
    """Both."""


@dataclass(frozen=True, slots=True)
class Connection:
    """An open WebSocket of a gateway."""

    endpoint: Annotated[StrictText, Member(other_names=("webSocketManagementApiEndpoint",))]
    id: Annotated[StrictText, Member("connectionId", other_names=("webSocketConnectionId",))]


SendFrame = Callable[[Connection, str], None]
"""Sends a text frame. NotFoundError if the connection is closed."""
