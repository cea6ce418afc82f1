"""Ids of queries over the WebSocket of API Gateway: names within a connection."""

from collections.abc import Callable
from typing import Any

import pytest

from sleeper.jobs.query_tracker import QueryState
from tests.handlers.live_gateway import KEYS, Gateway, body, keys
from tests.live_clients import Frame, clients_after


@pytest.fixture
def again(gateway: Gateway) -> Callable[..., list[Frame]]:
    """Queries as the second call of a Python client does: same id, another connection."""
    gateway.ask()
    return gateway.ask


@pytest.mark.parametrize("members", [{}, {"regions": keys(3, 5)}])
def test_the_id_of_another_connections_query_is_free(
    again: Callable[..., list[Frame]], gateway: Gateway, members: dict[str, Any]
) -> None:
    frames = again(**members)
    for client in clients_after(frames, "q"):
        assert (client.is_finished, client.error) == (True, None)
        assert len(client.rows) == (2 if members else KEYS)
    tracked = gateway.aws.instance.queries.tracker().recent()
    assert len({status.query_id for status in tracked}) == 2
    assert {status.state for status in tracked} == {QueryState.COMPLETED}
    assert "q" not in {status.query_id for status in tracked}


def test_a_connection_may_reuse_a_query_id(gateway: Gateway) -> None:
    connection = gateway.connect()
    for _ in range(2):
        gateway.send(connection, body("q", regions=keys(3, 5)))
        gateway.work()
    kinds = [frame["message"] for frame in gateway.frames[connection]]
    assert kinds == ["rows", "completed"] * 2


def test_a_query_without_an_id_gets_one(gateway: Gateway) -> None:
    connection = gateway.connect()
    gateway.send(connection, body(None, regions=keys(3, 5)))
    gateway.work()
    (query_id,) = {frame["queryId"] for frame in gateway.frames[connection]}
    assert query_id


def test_a_client_cannot_use_the_connection_of_another(gateway: Gateway) -> None:
    elsewhere = {
        "destination": "WEBSOCKET",
        "webSocketManagementApiEndpoint": "https://evil.example",
        "webSocketConnectionId": "victim",
        "endpoint": "https://evil.example",
        "connectionId": "victim",
    }
    message = {"resultsPublisherConfig": elsewhere, "statusReportDestinations": [elsewhere]}
    frames = gateway.ask(**message)
    assert set(gateway.frames) == {"connection-0"}
    assert all(client.is_finished for client in clients_after(frames, "q"))
