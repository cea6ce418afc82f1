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
    """The state of a query or a subquery. Only a query can be PARTIALLY_FAILED."""

    QUEUED = "QUEUED"
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    PARTIALLY_FAILED = "PARTIALLY_FAILED"

    @property
    def is_finished(self) -> bool:
        """Whether the state is final."""
        return self not in {QueryState.QUEUED, QueryState.IN_PROGRESS}


class QueryIdTakenError(InvalidRequestError):
    """The id belongs to another query."""

    def __init__(self, query_id: str) -> None:
        super().__init__(f"query id {query_id!r} belongs to another query")


@dataclass(frozen=True, slots=True)
class QueryPin:
    """The identity of a query and the version it reads, fixed by its first delivery.

    `fingerprint` distinguishes its message from that of another query with the same id.
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


def derive_query_state(subqueries: int, finished: int, failed: int) -> QueryState:
    """Returns the state of a query from the numbers of its subqueries.

    `failed` subqueries are finished too.
    """
    if finished < subqueries:
        return QueryState.IN_PROGRESS
    if not failed:
        return QueryState.COMPLETED
    return QueryState.FAILED if failed == subqueries else QueryState.PARTIALLY_FAILED


def format_rows_error(rows_max: int) -> str:
    """Returns the error of a subquery whose rows exceed the limit of its query."""
    return (
        f"the query returns more than {rows_max} rows in all its parts, the limit of "
        f"{QUERY_MESSAGE_ROWS_MAX.name}"
    )


class QueryTracker(Protocol):
    """Records the progress of queries. Each call is idempotent, and may be repeated at any time.

    A finished query or subquery does not change.
    """

    def begin(self, query_id: str, pin: QueryPin) -> QueryPin | None:
        """Records a query as queued. Returns the pin of its first delivery.

        None if the query is finished. QueryIdTakenError if the id belongs to another query.
        """

    def plan(self, query_id: str, sub_query_ids: Sequence[str]) -> None:
        """Records new subqueries as queued, then the query as in progress.

        Each call has the same subqueries. Without subqueries, the query is completed.
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
        """Records the end of a subquery, once. Returns the query's status if that ended the query.

        A subquery fails if the query's rows exceed `rows_max`; 0 is no limit.
        """

    def fail(self, query_id: str, fingerprint: str, error: str) -> QueryStatus | None:
        """Records the failure of a query. Returns its status, None if it was finished.

        QueryIdTakenError if the id belongs to another query, which does not change.
        """


class QueryHistory(Protocol):
    """Reads the recorded queries."""

    def query(self, query_id: str) -> QueryStatus:
        """Returns the query. NotFoundError if it is unknown."""

    def subqueries(self, query_id: str) -> tuple[QueryStatus, ...]:
        """Returns the subqueries, ordered by id."""

    def recent(self, limit: int = 100) -> tuple[QueryStatus, ...]:
        """Returns the most recent queries, newest first."""

    def remove_before(self, time_ms: int) -> int:
        """Deletes queries recorded before, with their subqueries. Returns the number of queries."""


class QueryRecords(QueryTracker, QueryHistory, Protocol):
    """Records and reads queries."""


@dataclass(frozen=True, slots=True)
class Connection:
    """An open WebSocket of a gateway."""

    endpoint: Annotated[StrictText, Member(other_names=("webSocketManagementApiEndpoint",))]
    id: Annotated[StrictText, Member("connectionId", other_names=("webSocketConnectionId",))]


SendFrame = Callable[[Connection, str], None]
"""Sends a text frame. NotFoundError if the connection is closed."""
