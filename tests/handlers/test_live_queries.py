"""Queries over the WebSocket of API Gateway, as clients read its frames.

See docs/formats.md, "WebSocket frames".
"""

import itertools
from functools import partial
from typing import Any

import pytest

from sleeper.errors import UnavailableError
from sleeper.query_service import run
from sleeper.query_service.frames import kept_alive
from tests.handlers.live_gateway import KEYS, Gateway, keys
from tests.live_clients import clients_after


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, range(KEYS)),
        ({"regions": keys(5, 15)}, range(5, 15)),
        ({"regions": keys(3, 5)}, range(3, 5)),
        ({"regions": []}, range(0)),
        ({"regions": keys(1000, 2000)}, range(0)),
        ({"tableName": "empty"}, range(0)),
        ({"resultsPublisherConfig": {"maxBatchSize": 3}}, range(KEYS)),
        ({"regions": keys(5, 5)}, range(0)),
        ({"queryId": "a/b c"}, range(KEYS)),
    ],
    ids=[
        "many-leaves",
        "two-leaves",
        "one-leaf",
        "no-region",
        "no-leaf",
        "empty",
        "pages",
        "empty-range",
        "slash",
    ],
)
def test_each_client_receives_every_row_and_the_end(
    gateway: Gateway, members: dict[str, Any], expected: range
) -> None:
    query_id = members.get("queryId", "q")
    members = {name: value for name, value in members.items() if name != "queryId"}
    frames = gateway.ask(query_id, **members)
    for client in clients_after(frames, query_id):
        assert client.is_finished, (client, frames)
        assert client.error is None
        assert sorted(row["k"] for row in client.rows) == list(expected)


def test_completed_frames_come_after_all_rows_one_for_each_subquery(gateway: Gateway) -> None:
    frames = gateway.ask(resultsPublisherConfig={"maxBatchSize": 3})
    kinds = [kind for kind, _ in itertools.groupby(frame["message"] for frame in frames)]
    assert kinds == ["subqueries", "rows", "completed"]
    completed = [frame for frame in frames if frame["message"] == "completed"]
    assert sorted(f["queryId"] for f in completed) == sorted(frames[0]["queryIds"])
    assert [f["rowCount"] for f in completed] == [10] * 4
    assert {f["queryId"] for f in frames if f["message"] != "completed"} == {"q"}


def test_clients_ignore_keep_alive_frames_and_none_follows_the_end(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "kept_alive", partial(kept_alive, seconds=0.0001))
    frames = gateway.ask()
    assert [frame for frame in frames if frame.get("rows") == []]
    kinds = [kind for kind, _ in itertools.groupby(frame["message"] for frame in frames)]
    assert kinds == ["subqueries", "rows", "completed"]
    for client in clients_after(frames, "q"):
        assert (client.is_finished, len(client.rows)) == (True, KEYS)


@pytest.mark.parametrize("regions", [[], keys(3, 5), keys(1000, 2000)])
def test_a_query_that_runs_in_one_place_has_one_completed_frame_of_its_own_id(
    gateway: Gateway, regions: list[Any]
) -> None:
    *rows, end = gateway.ask(regions=regions)
    assert {frame["message"] for frame in rows} <= {"rows"}
    assert (end["message"], end["queryId"]) == ("completed", "q")


def test_results_elsewhere_are_located_by_the_completed_frames(gateway: Gateway) -> None:
    frames = gateway.ask(resultsPublisherConfig={"destination": "S3"})
    assert [f["message"] for f in frames] == ["subqueries", *["completed"] * 4]
    (where,) = {f["locations"][0]["location"].rpartition("/")[0] for f in frames[1:]}
    root = gateway.aws.instance.queries.results_root(None)
    (tracked,) = gateway.aws.instance.queries.tracker().recent()
    assert where == root.url_of(f"query-{tracked.query_id}")
    for frame in frames[1:]:
        assert frame["locations"][0]["location"] == f"{where}/{frame['queryId']}.parquet"
    assert all(client.is_finished for client in clients_after(frames, "q"))


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"tableName": "nowhere"}, "nowhere"),
        ({"regions": 7}, "regions"),
        ({"requestedValueFields": ["nope"]}, "nope"),
        ({"regions": [{"k": {"min": "x"}}]}, "'k'"),
        ({"resultsPublisherConfig": {"destination": "Mars"}}, "Mars"),
        ({"resultsPublisherConfig": {"destination": ["S3"]}}, "S3"),
        ({"regions": [{"k": {"mim": 3}}]}, "'mim'"),
    ],
)
def test_each_client_receives_one_error_of_a_failed_query(
    gateway: Gateway, members: dict[str, Any], reason: str
) -> None:
    frames = gateway.ask(**members)
    assert [frame["message"] for frame in frames] == ["error"]
    assert frames[0]["queryId"] == "q"
    for client in clients_after(frames, "q"):
        assert client.error is not None
        assert reason in client.error


def test_each_client_receives_partial_failures(gateway: Gateway) -> None:
    gateway.aws.instance.change_properties({"sleeper.query.message.rows.max": "25"})
    frames = gateway.ask()
    assert frames[-1]["message"] == "error"
    assert "completed" not in {frame["message"] for frame in frames}
    for client in clients_after(frames, "q"):
        assert "more than 25 rows" in (client.error or "")


def test_each_client_reports_an_unreadable_end(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: object) -> None:
        raise UnavailableError("no answer")

    tracker = gateway.aws.instance.queries.tracker()
    monkeypatch.setattr(type(tracker), "subqueries", unavailable)
    frames = gateway.ask()
    assert [f["message"] for f in frames if f["message"] != "rows"] == ["subqueries", "error"]
    assert list(gateway.aws.instance.table("t").state.holds.all()) == []


def test_too_many_subqueries_to_list_end_with_one_completed_frame(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sleeper.query_service.frames.LISTED_SUBQUERIES_MAX", 3)
    frames = gateway.ask()
    assert [f["queryId"] for f in frames if f["message"] == "completed"] == ["q"]
    for client in clients_after(frames, "q"):
        assert (client.is_finished, len(client.rows)) == (True, KEYS)
