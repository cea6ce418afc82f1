"""Ports of queries: the tracker (docs/formats.md, "Query tracker"), WebSocket connections.

A query's id may come again. A *run* of an id is one query with it, named by the message that began
it. While a run is unfinished, another query with its id is refused. After that, a new message
starts the id over with a new run, and nothing that belongs to the old one counts any more. An id
remembers its newest messages, so that a redelivery of any of them starts nothing over.
"""

import hashlib
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
    """The id belongs to another query that is not finished."""

    def __init__(self, query_id: str) -> None:
        super().__init__(f"query id {query_id!r} belongs to another query that is not finished")


@dataclass(frozen=True, slots=True)
class QueryPin:
    """The identity of a query and the version it reads, fixed by its first delivery.

    `fingerprint` distinguishes its content from that of another query with the same id. `run` names
    the message, or empty for a query of an earlier release. `replaces` says that the id had an
    earlier query.
    """

    fingerprint: str
    table_id: str
    version: int
    now_ms: int
    run: str = ""
    replaces: bool = False


def run_of_message(message_id: str) -> str:
    """Returns the name of the run that a message begins."""
    return hashlib.sha256(message_id.encode(errors="surrogatepass")).hexdigest()[:16]


_MESSAGES_MAX = 30


@dataclass(frozen=True, slots=True)
class QueryRun:
    """The newest run of an id, as trackers store it. `messages` are those of its runs, in order."""

    query_id: str
    fingerprint: str
    run: str
    messages: str
    state: QueryState

    @property
    def replaces(self) -> bool:
        """Whether the id had an earlier run."""
        return self.messages.split()[:1] not in ([], [self.run])

    def knows(self, message: str) -> bool:
        """Returns whether a run of the id began with the message, or was joined by it."""
        return message in self.messages.split()

    def add(self, message: str) -> str:
        """Returns the messages with another one, without the oldest if they are many."""
        return " ".join([*self.messages.split(), message][-_MESSAGES_MAX:])

    def is_over_for(self, fingerprint: str, message: str) -> bool:
        """Returns whether the message's query is finished. This run can be a later one."""
        is_later = self.fingerprint != fingerprint
        return self.knows(message) and (self.state.is_finished or is_later)

    def starts_over(self, fingerprint: str) -> bool:
        """Returns whether a new message starts the id over; False if it belongs to this run.

        QueryIdTakenError if it is another query, and this one is not finished.
        """
        if self.state.is_finished:
            return True
        if self.fingerprint != fingerprint:
            raise QueryIdTakenError(self.query_id)
        return False


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

    A finished query or subquery does not change, until its id is started over. Calls with a `run`
    that is not the id's newest change nothing.
    """

    def begin(self, query_id: str, pin: QueryPin) -> QueryPin | None:
        """Records a query as queued. Returns the pin of its first delivery.

        Starts the id over if its query is finished and another message began it. None if the
        message's query is finished. QueryIdTakenError if the id belongs to an unfinished query
        with another fingerprint.
        """

    def is_newest(self, query_id: str, run: str) -> bool:
        """Returns whether the id has no newer run."""

    def plan(self, query_id: str, sub_query_ids: Sequence[str], run: str = "") -> None:
        """Records new subqueries as queued, then the query as in progress.

        Each call has the same subqueries. Without subqueries, the query is completed.
        """

    def start(self, query_id: str, sub_query_id: str, run: str = "") -> bool:
        """Records a subquery as in progress; False if it is finished, or the id started over."""

    def finish(
        self,
        query_id: str,
        sub_query_id: str,
        rows: int,
        error: str | None = None,
        rows_max: int = 0,
        run: str = "",
    ) -> QueryStatus | None:
        """Records the end of a subquery, once. Returns the query's status if that ended the query.

        A subquery fails if the query's rows exceed `rows_max`; 0 is no limit.
        """

    def fail(
        self, query_id: str, fingerprint: str, error: str, run: str = ""
    ) -> QueryStatus | None:
        """Records the failure of a query. Returns its status, None if it was finished.

        Starts the id over as `begin` does. QueryIdTakenError if the id belongs to an unfinished
        query with another fingerprint, which does not change.
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
