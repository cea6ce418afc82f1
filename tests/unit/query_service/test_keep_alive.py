"""Keep-alive frames: sent while a subquery runs, and not afterwards."""

import json
import time

from sleeper.errors import NotFoundError
from sleeper.jobs.query_tracker import Connection
from sleeper.query.messages.destination import DestinationKind, ResultsDestination
from sleeper.query.messages.query import QueryMessage
from sleeper.query_service.frames import kept_alive

CONNECTION = Connection("https://here/live", "c1")
MESSAGE = QueryMessage(
    "q",
    (),
    table_name="t",
    results=ResultsDestination(DestinationKind.WEBSOCKET, connection=CONNECTION),
)


def test_empty_frames_are_sent_until_the_end() -> None:
    frames: list[tuple[Connection, str]] = []
    with kept_alive(MESSAGE, lambda *frame: frames.append(frame), 0.02):
        end = time.monotonic() + 60
        while len(frames) < 3 and time.monotonic() < end:
            time.sleep(0.01)
    count = len(frames)
    time.sleep(0.1)
    assert len(frames) == count >= 3
    assert {connection for connection, _ in frames} == {CONNECTION}
    assert json.loads(frames[0][1]) == {"message": "rows", "queryId": "q", "rows": []}


def test_short_queries_and_queries_without_connections_send_none() -> None:
    frames: list[object] = []
    with kept_alive(MESSAGE, lambda *frame: frames.append(frame), 10):
        pass
    with kept_alive(
        QueryMessage("q", (), table_name="t"), lambda *frame: frames.append(frame), 0.001
    ):
        time.sleep(0.05)
    assert frames == []


def test_a_closed_connection_ends_the_frames() -> None:
    tries: list[Connection] = []

    def raise_closed(connection: Connection, _frame: str) -> None:
        tries.append(connection)
        raise NotFoundError("closed")

    with kept_alive(MESSAGE, raise_closed, 0.01):
        time.sleep(0.1)
    assert tries == [CONNECTION]
