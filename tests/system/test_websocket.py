"""Queries over a WebSocket by a client that uses the documented frame formats only."""

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from sleeper.instance import Instance
from sleeper.serve.live import FRAME_BYTES_MAX
from sleeper.serve.service import ServerLimits
from tests.live_clients import clients_after
from tests.servers.serving import Serving, serving
from tests.system.served_table import WIDE_ROWS, instance_with_rows

ROWS = 50_000
Frame = dict[str, Any]


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with instance_with_rows(tmp_path_factory.mktemp("live") / "instance", ROWS) as instance:
        yield instance


@pytest.fixture(scope="module")
def server(numbers: Instance) -> Iterator[Serving]:
    with serving(numbers, ServerLimits(seconds_max=30)) as running:
        yield running


def query(low: int = 0, high: int = ROWS, **members: Any) -> str:
    region = {"id": {"min": low, "minInclusive": True, "max": high, "maxInclusive": False}}
    send_and_receive = {
        "type": "Query",
        "queryId": "q",
        "tableName": "numbers",
        "regions": [region],
    }
    return json.dumps({**send_and_receive, **members})


def read_frames(live: ClientConnection, seconds: float = 30) -> list[Frame]:
    """Frames up to the one that ends a query, each within the time that clients wait."""
    frames: list[Frame] = []
    while not frames or frames[-1]["message"] not in {"completed", "error"}:
        text = live.recv(timeout=seconds)
        assert len(text) <= FRAME_BYTES_MAX
        frames.append(json.loads(text))
    return frames


def send_and_receive(server: Serving, message: str) -> list[Frame]:
    with server.live() as live:
        live.send(message)
        return read_frames(live)


def list_ids(frames: list[Frame]) -> list[int]:
    return [row["id"] for f in frames if f["message"] == "rows" for row in f["rows"]]


def test_rows_are_sent_in_frames_followed_by_one_end(server: Serving) -> None:
    frames = send_and_receive(server, query())
    assert {f["message"] for f in frames[:-1]} == {"rows"}
    assert len(frames) > 10
    assert list_ids(frames) == list(range(ROWS))
    assert frames[-1] == {
        "message": "completed",
        "queryId": "q",
        "rowCount": ROWS,
        "locations": [],
    }


def test_a_query_reads_the_version_that_it_names(server: Serving) -> None:
    rows = {
        number: len(list_ids(send_and_receive(server, query(asOf=number)))) for number in (1, 2)
    }
    assert rows == {1: 0, 2: ROWS}
    (frame,) = send_and_receive(server, query(asOf=900))
    assert (frame["message"], "900" in frame["error"]) == ("error", True)


def test_no_frame_follows_the_end(server: Serving) -> None:
    with server.live() as live:
        live.send(query(0, 3))
        read_frames(live)
        with pytest.raises(TimeoutError):
            live.recv(timeout=0.5)


def test_fields_encoded_strings_and_page_sizes_follow_the_message(server: Serving) -> None:
    frames = send_and_receive(
        server, query(0, 5, requestedValueFields=[], resultsPublisherConfig={"batchSize": "2"})
    )
    assert [f["rows"] for f in frames if f["message"] == "rows"] == [
        [{"id": 0}, {"id": 1}],
        [{"id": 2}, {"id": 3}],
        [{"id": 4}],
    ]


def test_a_query_for_nothing_is_completed_with_no_rows(server: Serving) -> None:
    end = send_and_receive(server, query(regions=[]))[-1]
    assert (end["message"], end["rowCount"]) == ("completed", 0)
    end = send_and_receive(server, query(tableName="empty"))[-1]
    assert (end["message"], end["rowCount"]) == ("completed", 0)
    frames = send_and_receive(
        server, query(resultsPublisherConfig={"destination": "NoResultsOutput"})
    )
    assert [f["message"] for f in frames] == ["completed"]
    assert frames[-1]["rowCount"] == ROWS


@pytest.mark.parametrize(
    ("members", "rows"),
    [
        ({}, ROWS),
        ({"regions": [{"id": {"min": 3, "max": 5}}]}, 2),
        ({"regions": []}, 0),
        ({"regions": [{"id": {"min": ROWS}}]}, 0),
        ({"regions": [{"id": {"min": 9, "max": 3}}]}, 0),
        ({"resultsPublisherConfig": {"maxBatchSize": "5000.0"}}, ROWS),
        ({"tableName": "empty"}, 0),
        ({"resultsPublisherConfig": {"destination": "NoResultsOutput"}}, 0),
    ],
    ids=[
        "many-leaves",
        "one-leaf",
        "no-region",
        "no-leaf",
        "empty-range",
        "pages",
        "empty",
        "no-output",
    ],
)
def test_each_client_receives_every_row_and_the_end(
    server: Serving, members: Any, rows: int
) -> None:
    # A client's id may come again on every connection of its process.
    for client in clients_after(send_and_receive(server, query(**members)), "q"):
        assert (client.is_finished, client.error) == (True, None), client
        assert [row["id"] for row in client.rows] == list(range(3, 5) if rows == 2 else range(rows))


@pytest.mark.parametrize("members", [{"tableName": "nope"}, {"regions": 7}])
def test_each_client_receives_the_reason_of_a_failed_query(server: Serving, members: Any) -> None:
    for client in clients_after(send_and_receive(server, query(**members)), "q"):
        assert client.is_finished
        assert client.error


def test_a_table_may_be_named_by_its_id(server: Serving) -> None:
    table_id = server.get("/tables/numbers").json()["id"]
    assert (
        len(list_ids(send_and_receive(server, query(0, 5, tableName=None, tableId=table_id)))) == 5
    )


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("", "not JSON"),
        ("nonsense", "not JSON"),
        ("[" * 5000, "not JSON"),
        ("[1]", "expected an object"),
        ("{}", "regions"),
        (query(type="Nonsense"), "Nonsense"),
        (query(tableName="nope"), "nope"),
        (query(tableName=None, tableId="00000000"), "00000000"),
        (query(regions=[{"id": {"mim": 3}}]), "'mim'"),
        (query(regions=[{"id": {"min": "x"}}]), "regions[0]"),
        (query(regions=[{"nope": {}}]), "nope"),
        (query(regions=None), "regions"),
        (query(requestedValueFields=["nope"]), "nope"),
        (query(queryTimeIteratorClassName="Nope"), "Nope"),
        (query(resultsPublisherConfig={"destination": "Nowhere"}), "Nowhere"),
        (query(resultsPublisherConfig={"destination": "S3"}), "S3"),
        (query(resultsPublisherConfig=7), "resultsPublisherConfig"),
        (query(statusReportDestinations=7), "statusReportDestinations"),
        (query(queryId={"a": 7}), "queryId"),
    ],
)
def test_an_invalid_frame_is_reported_once_and_the_connection_continues(
    server: Serving, message: str, reason: str
) -> None:
    with server.live() as live:
        live.send(message)
        (frame,) = read_frames(live)
        assert set(frame) == {"message", "queryId", "error"}
        assert (frame["message"], reason in frame["error"]) == ("error", True), frame
        live.send(query(0, 3, queryId="next"))
        frames = read_frames(live)
        assert {f["queryId"] for f in frames} == {"next"}
        assert list_ids(frames) == [0, 1, 2]


def test_a_frame_of_bytes_is_refused(server: Serving) -> None:
    with server.live() as live:
        live.send(b"\x00\x01")
        assert "not JSON" in read_frames(live)[0]["error"]


def test_a_query_without_an_id_gets_one(server: Serving) -> None:
    frames = send_and_receive(server, query(0, 3, queryId=None))
    assert len({f["queryId"] for f in frames}) == 1
    assert frames[0]["queryId"]


def test_several_queries_share_a_connection(server: Serving) -> None:
    with server.live() as live:
        for number in range(4):
            live.send(query(number, number + 5000, queryId=f"q{number}"))
        frames = [frame for _ in range(4) for frame in read_frames(live)]
    for number in range(4):
        mine = [f for f in frames if f["queryId"] == f"q{number}"]
        assert list_ids(mine) == list(range(number, number + 5000))
        assert mine[-1]["message"] == "completed"


def test_too_many_queries_on_a_connection_are_refused(server: Serving) -> None:
    with server.live() as live:
        for number in range(20):
            live.send(query(queryId=f"q{number}"))
        ends = [read_frames(live)[-1] for _ in range(20)]
    assert {end["queryId"] for end in ends} == {f"q{number}" for number in range(20)}
    refusals = [end["error"] for end in ends if end["message"] == "error"]
    assert refusals
    assert all("8 queries" in error for error in refusals)


def test_a_waiting_query_sends_keep_alive_frames(numbers: Instance) -> None:
    limits = ServerLimits(queries_max=1, keep_alive_seconds=0.1)
    with serving(numbers, limits) as slow, slow.live(max_queue=1) as busy, slow.live() as live:
        busy.send(query(0, WIDE_ROWS, tableName="wide"))
        # With its first frame it has the slot, and keeps it until the rest is read.
        busy.recv(timeout=30)
        live.send(query(0, 3))
        for _ in range(2):
            frame = json.loads(live.recv(timeout=30))
            assert frame == {"message": "rows", "queryId": "q", "rows": []}
        read_frames(busy)
        frames = read_frames(live)
    assert [f["message"] for f in frames if f.get("rows") != []] == ["rows", "completed"]
    assert list_ids(frames) == [0, 1, 2]


def test_a_slow_reader_receives_all_rows(server: Serving) -> None:
    with server.live(max_queue=1) as live:
        live.send(query(0, WIDE_ROWS, tableName="wide"))
        frames: list[Frame] = []
        for _ in range(8):
            frames.append(json.loads(live.recv(timeout=10)))
            time.sleep(0.2)
        frames += read_frames(live)
    assert list_ids(frames) == list(range(WIDE_ROWS))
    assert frames[-1]["rowCount"] == WIDE_ROWS


def test_clients_that_do_not_read_are_disconnected_after_the_timeout(numbers: Instance) -> None:
    with (
        serving(numbers, ServerLimits(queries_max=1, seconds_max=2)) as small,
        small.live(max_queue=1) as live,
    ):
        live.send(query(0, WIDE_ROWS, tableName="wide"))
        start = time.monotonic()
        assert list_ids(send_and_receive(small, query(0, 3))) == [0, 1, 2]
        assert time.monotonic() - start < 20
        frames = read_frames(live)
    assert len(list_ids(frames)) < WIDE_ROWS
    assert frames[-1]["message"] == "error"


def test_a_connection_that_closes_in_mid_stream_stops_its_query(numbers: Instance) -> None:
    with serving(numbers, ServerLimits(queries_max=1, seconds_max=60)) as small:
        for _ in range(3):
            with small.live(max_queue=1, close_timeout=0.5) as live:
                live.send(query(0, WIDE_ROWS, tableName="wide"))
                live.recv()
        start = time.monotonic()
        # There is one slot: it must be free again.
        assert list_ids(send_and_receive(small, query(0, 3))) == [0, 1, 2]
        assert time.monotonic() - start < 20


def test_a_frame_that_is_too_large_closes_the_connection(numbers: Instance) -> None:
    with serving(numbers, ServerLimits(body_bytes_max=2000)) as small, small.live() as live:
        live.send("x" * 5000)
        with pytest.raises(ConnectionClosed) as error:
            live.recv(timeout=10)
        assert error.value.rcvd is not None
        assert error.value.rcvd.code == 1009


def test_requests_without_a_token_or_from_another_origin_are_refused(numbers: Instance) -> None:
    token = base64.b64encode(b"a token of some length").decode()
    with serving(numbers, token=token) as protected:
        with pytest.raises(InvalidStatus, match="403"):
            protected.live()
        headers = {"Authorization": f"Bearer {token}"}
        with pytest.raises(InvalidStatus, match="403"):
            protected.live(additional_headers=headers, origin="http://evil.example")
        with protected.live(additional_headers=headers) as live:
            live.send(query(0, 3))
            assert list_ids(read_frames(live)) == [0, 1, 2]
