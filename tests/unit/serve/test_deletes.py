"""Deletes over HTTP: what they delete, and requests that change nothing."""

from typing import Any

import httpx
import pyarrow as pa
import pytest

from sleeper.admin.properties import change_table_properties
from sleeper.admin.tables import create_table
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.serve.service import ServerLimits
from tests.unit.serve.client import TOKEN, read_keys, read_version
from tests.unit.serve.client import post as post_json

_SCHEMA = """{"rowKeyFields":[{"name":"k","type":"LongType"}],
 "valueFields":[{"name":"v","type":"StringType"}]}"""


@pytest.fixture
def table(instance: Instance) -> Instance:
    create_table(instance, "t", _SCHEMA)
    add_rows(instance)
    return instance


def add_rows(instance: Instance) -> None:
    keys = list(range(10))
    ingest_rows(instance, "t", [pa.record_batch({"k": keys, "v": [f"v{k}" for k in keys]})])


def post(instance: Instance, body: Any, name: str = "t", **options: Any) -> httpx.Response:
    return post_json(instance, f"/tables/{name}/delete", body, **options)


def test_rows_in_any_key_range_or_region_are_deleted(table: Instance) -> None:
    region = {"k": {"min": 8, "max": None}}
    body = {"keys": [1, [2]], "ranges": [[4, 6]], "regions": [region], "id": "once"}
    answer = post(table, body)
    assert answer.status_code == 200
    assert answer.json() == {"number": 3, "id": "once", "regions": 4, "alreadyDone": False}
    assert read_keys(table) == [0, 3, 6, 7]


def test_all_deletes_every_row(table: Instance) -> None:
    answer = post(table, {"all": True})
    assert answer.json()["regions"] == 1
    assert len(answer.json()["id"]) > 8
    assert read_keys(table) == []


def test_a_repeated_request_with_an_id_changes_nothing(table: Instance) -> None:
    first = post(table, {"ranges": [[0, 5]], "id": "once"}).json()
    add_rows(table)
    again = post(table, {"ranges": [[0, 5]], "id": "once"}).json()
    assert again == first | {"alreadyDone": True}
    assert sorted(read_keys(table)) == sorted([*range(10), *range(5, 10)])
    other = post(table, {"ranges": [[0, 6]], "id": "once"})
    assert (other.status_code, other.json()["error"]) == (409, "Conflict")
    assert "once" in other.json()["reason"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "no rows to delete"),
        ({"keys": []}, "no rows to delete"),
        ({"all": False}, "no rows to delete"),
        ({"regions": [{}]}, 'selects all rows (expected "all": true)'),
        ({"all": 1}, '"all" must be true or false, not 1'),
        ({"all": True, "keys": [1]}, '"all" deletes all rows'),
        ({"all": True, "ranges": []}, '"all" deletes all rows'),
        ({"keys": ["x"]}, '"keys[0]"'),
        ({"keys": [1, [1, 2]]}, '"keys[1]"'),
        ({"ranges": [[2, 1]]}, '"ranges[0]"'),
        ({"regions": [{"v": {"min": "a"}}]}, '"regions[0]"'),
        ({"keys": [1], "filters": "v"}, "unknown member 'filters'"),
        ({"keys": [1], "id": 7}, '"id" must be text, not 7'),
        ({"keys": [1], "id": ""}, "invalid id of a delete"),
        ({"keys": [1], "id": "\ud800"}, "invalid id of a delete"),
        ({"keys": [1], "id": "x" * 201}, "invalid id of a delete"),
        ({"ranges": [[k, k + 2] for k in range(0, 40_004, 4)]}, "10,001 regions to delete"),
        ([1], "JSON object"),
    ],
)
def test_invalid_requests_change_nothing(table: Instance, body: Any, reason: str) -> None:
    before = read_version(table)
    answer = post(table, body)
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")
    assert reason in answer.json()["reason"]
    assert read_version(table) == before


def test_bodies_and_paths_that_are_refused(table: Instance) -> None:
    assert post(table, {"all": True}, name="nope").status_code == 404
    large = post(table, {"keys": [1] * 100}, limits=ServerLimits(body_bytes_max=100))
    assert (large.status_code, large.json()["reason"]) == (413, "the body has more than 100 bytes")
    # A page of another site can send such a request without asking.
    assert post(table, {"all": True}, headers={"Content-Type": "text/plain"}).status_code == 415
    assert len(read_keys(table)) == 10


def test_a_server_with_a_token_deletes_only_with_it(table: Instance) -> None:
    assert post(table, {"all": True}, token=TOKEN).status_code == 401
    assert len(read_keys(table)) == 10
    authorization = {"Authorization": f"Bearer {TOKEN}"}
    assert post(table, {"all": True}, token=TOKEN, headers=authorization).status_code == 200


@pytest.mark.parametrize("callers", ['{"local": {"valueFields": []}, "*": {}}', '{"somebody": {}}'])
def test_restricted_callers_may_not_delete(table: Instance, callers: str) -> None:
    change_table_properties(table, "t", {"sleeper.table.query.callers": callers})
    answer = post(table, {"all": True})
    assert (answer.status_code, answer.json()["error"]) == (403, "Forbidden")
    assert "caller 'local' may not" in answer.json()["reason"]
    change_table_properties(table, "t", {"sleeper.table.query.callers": '{"local": {}}'})
    assert len(read_keys(table)) == 10
    assert post(table, {"keys": [1]}).status_code == 200


def test_a_read_only_server_says_why_it_refuses(table: Instance) -> None:
    answer = post(table, {"all": True}, read_only_reason="the server is read-only: a test")
    assert answer.status_code == 403
    assert answer.json() == {"error": "Forbidden", "reason": "the server is read-only: a test"}
    assert len(read_keys(table)) == 10
