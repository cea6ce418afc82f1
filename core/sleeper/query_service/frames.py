"""Status frames of a query for its WebSocket connections (docs/formats.md, "WebSocket frames").

Some clients stop at the first `completed` frame. Others wait for one of each id in the
`subqueries` frame, or of the query's own id if there is no such frame. So the worker that ends
the query sends all `completed` frames, after every row.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sleeper.errors import SleeperError
from sleeper.jobs.query_tracker import Connection, SendFrame
from sleeper.query.messages.destination import DestinationKind
from sleeper.query.messages.query import QueryMessage
from sleeper.renewal import Renewal

logger = logging.getLogger(__name__)
Location = dict[str, str]
LISTED_SUBQUERIES_MAX = 1000
"""The largest number of subqueries for which each has a frame at the end of the query."""


@dataclass(frozen=True, slots=True)
class CompletedPart:
    """The number and places of the rows of a query, or of one of its subqueries."""

    id: str
    row_count: int
    locations: Sequence[Location] = ()


def results_folder(query_id: str) -> str:
    """Returns the folder of a query's rows, below the results' root.

    Clients list it by the id as it is, so a slash in the id makes a folder within a folder.
    """
    return f"query-{query_id}"


def results_path(query_id: str, sub_query_id: str) -> str:
    """Returns the file of a subquery's rows, below the results' root."""
    return f"{results_folder(query_id)}/{sub_query_id}.parquet"


def frame_sender(send: SendFrame | None) -> SendFrame:
    """Returns the sender of frames. Without a WebSocket, sending raises SleeperError."""
    return send or _refuse_frame


def _refuse_frame(connection: Connection, _frame: str) -> None:
    raise SleeperError(f"the instance has no WebSocket: cannot send to {connection.endpoint}")


def are_listed(subqueries: int) -> bool:
    """Returns whether the query has a `subqueries` frame, and a `completed` frame for each."""
    return 1 < subqueries <= LISTED_SUBQUERIES_MAX


def send_subqueries(message: QueryMessage, sub_query_ids: Sequence[str], send: SendFrame) -> None:
    """Sends the ids of the subqueries, if they are listed. Logs errors."""
    if are_listed(len(sub_query_ids)):
        frame = {
            "message": "subqueries",
            "queryId": message.frame_id,
            "queryIds": list(sub_query_ids),
        }
        _send(message, [frame], send)


def send_completed(message: QueryMessage, parts: Iterable[CompletedPart], send: SendFrame) -> None:
    """Sends a `completed` frame for each part, the last frames of the query. Logs errors."""
    frames = [
        {
            "message": "completed",
            "queryId": part.id,
            "rowCount": part.row_count,
            "locations": list(part.locations),
        }
        for part in parts
    ]
    _send(message, frames, send)


def send_failed(message: QueryMessage, error: str | None, send: SendFrame) -> None:
    """Sends the reason for a query's failure, its last frame. Logs errors."""
    frame = {"message": "error", "queryId": message.frame_id, "error": error or ""}
    _send(message, [frame], send)


def _send(message: QueryMessage, frames: Sequence[Mapping[str, object]], send: SendFrame) -> None:
    for connection in listeners(message):
        try:
            for frame in frames:
                send(connection, json.dumps(frame))
        except SleeperError as error:
            logger.info("could not send frames of query %s: %s", message.query_id, error)


def listeners(message: QueryMessage) -> list[Connection]:
    """Returns the connections that receive the query's status, each once."""
    connections = [each.connection for each in message.status]
    if message.results.kind is DestinationKind.WEBSOCKET:
        connections.append(message.results.connection)
    return list(dict.fromkeys(each for each in connections if each is not None))


KEEP_ALIVE_SECONDS = 15.0


@contextmanager
def kept_alive(
    message: QueryMessage, send: SendFrame, seconds: float = KEEP_ALIVE_SECONDS
) -> Iterator[None]:
    """Sends an empty frame to the query's connections every period, within the block.

    Ends when a connection is closed, and raises no error.
    """
    connections = listeners(message)
    if not connections:
        yield
        return
    frame = json.dumps({"message": "rows", "queryId": message.frame_id, "rows": []})

    def send_frames() -> None:
        for connection in connections:
            send(connection, frame)

    with Renewal(
        f"keep-alive of query {message.query_id}", send_frames, seconds, ends_on=SleeperError
    ):
        yield
