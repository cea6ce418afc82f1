"""Who listens hears something while a subquery is silent, and nothing after."""

import json
import time

from sleeper.errors import NotFoundError
from sleeper.jobs.connection import Connection
from sleeper.query.messages.destination import DestinationKind, ResultsDestination
from sleeper.query.messages.query import QueryMessage
from sleeper.query_service.frames import kept_alive

HERE = Connection("https://here/live", "c1")
LISTENING = QueryMessage(
    "q", (), "t", results=ResultsDestination(DestinationKind.WEBSOCKET, connection=HERE)
)


def test_frames_of_no_rows_are_sent_until_the_end_and_none_after() -> None:
    told: list[tuple[Connection, str]] = []
    with kept_alive(LISTENING, lambda *frame: told.append(frame), 0.02):
        end = time.monotonic() + 10
        while len(told) < 3 and time.monotonic() < end:
            time.sleep(0.01)
    heard = len(told)
    time.sleep(0.1)
    assert len(told) == heard >= 3
    assert {connection for connection, _ in told} == {HERE}
    assert json.loads(told[0][1]) == {"message": "rows", "queryId": "q", "rows": []}


def test_a_short_query_sends_none_and_one_without_listeners_starts_nothing() -> None:
    told: list[object] = []
    with kept_alive(LISTENING, lambda *frame: told.append(frame), 10):
        pass
    with kept_alive(QueryMessage("q", (), "t"), lambda *frame: told.append(frame), 0.001):
        time.sleep(0.05)
    assert told == []


def test_a_connection_that_is_closed_is_left_alone() -> None:
    tries: list[Connection] = []

    def closed(connection: Connection, _frame: str) -> None:
        tries.append(connection)
        raise NotFoundError("closed")

    with kept_alive(LISTENING, closed, 0.01):
        time.sleep(0.1)
    assert tries == [HERE]
