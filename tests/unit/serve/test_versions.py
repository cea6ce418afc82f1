"""Restores, undos and clones over HTTP, and requests that change nothing."""

from typing import Any

import httpx
import pyarrow as pa
import pytest

from sleeper.admin.properties import change_table_properties
from sleeper.admin.tables import create_table
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from tests.unit.serve.client import TOKEN, read_keys, read_version
from tests.unit.serve.client import post as post_json

_SCHEMA = '{"rowKeyFields":[{"name":"k","type":"LongType"}]}'
_CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("restore", {"to": 2}),
    ("undo", {"jobId": "second"}),
    ("clone", {"name": "copy"}),
]


@pytest.fixture
def table(instance: Instance) -> Instance:
    """A table with the keys 0 to 2 from transaction 2, and 3 to 4 from transaction 3."""
    create_table(instance, "t", _SCHEMA)
    for job, keys in (("first", [0, 1, 2]), ("second", [3, 4])):
        ingest_rows(instance, "t", [pa.record_batch({"k": keys})], job_id=job)
    return instance


def post(
    instance: Instance, route: str, body: Any, name: str = "t", **options: Any
) -> httpx.Response:
    return post_json(instance, f"/tables/{name}/{route}", body, **options)


def test_a_version_is_restored_once(table: Instance) -> None:
    answer = post(table, "restore", {"to": 2, "id": "back"})
    assert answer.status_code == 200
    assert answer.json() == {"number": 4, "id": "back", "alreadyDone": False, "version": 2}
    assert read_keys(table) == [0, 1, 2]
    again = post(table, "restore", {"to": 2, "id": "back"})
    assert again.json() == answer.json() | {"alreadyDone": True}
    other = post(table, "restore", {"to": 3, "id": "back"})
    assert (other.status_code, other.json()["error"]) == (409, "Conflict")
    assert read_keys(table) == [0, 1, 2]


def test_a_version_is_restored_by_time(table: Instance) -> None:
    assert post(table, "restore", {"to": "0s"}).json()["version"] == 3
    assert read_keys(table) == [0, 1, 2, 3, 4]
    first = post(table, "restore", {"to": 2, "id": "back"}).json()
    again = post(table, "restore", {"to": "0s", "id": "back"}).json()
    assert again == first | {"alreadyDone": True, "version": None}


def test_a_job_is_undone_once(table: Instance) -> None:
    answer = post(table, "undo", {"jobId": "first", "id": "undo-1"})
    assert answer.json() == {"number": 4, "id": "undo-1", "alreadyDone": False}
    assert read_keys(table) == [3, 4]
    assert post(table, "undo", {"jobId": "first"}).json()["alreadyDone"] is True
    unknown = post(table, "undo", {"jobId": "nope"})
    assert (unknown.status_code, unknown.json()["error"]) == (404, "NotFound")
    assert read_version(table) == 4


def test_a_clone_has_the_rows_of_the_version(table: Instance) -> None:
    answer = post(table, "clone", {"name": "copy", "asOf": 2})
    assert answer.status_code == 200
    assert {k: answer.json()[k] for k in ("name", "version", "files")} == {
        "name": "copy",
        "version": 2,
        "files": 1,
    }
    assert (read_keys(table, "copy"), read_keys(table)) == ([0, 1, 2], [0, 1, 2, 3, 4])
    assert table.table("copy").ref.id == answer.json()["id"]
    assert post(table, "clone", {"name": "copy"}).status_code == 409


@pytest.mark.parametrize(
    ("route", "body", "reason"),
    [
        ("restore", {}, '"to" is missing'),
        ("restore", {"to": 9}, "9"),
        ("restore", {"to": True}, '"to": as of True'),
        ("restore", {"to": "soon"}, "\"to\": as of 'soon'"),
        ("restore", {"to": 2, "asOf": 2}, "unknown member 'asOf' (expected to, id)"),
        ("restore", {"to": 2, "id": ""}, "invalid id of a request"),
        ("restore", {"to": 2, "id": 7}, '"id" must be text, not 7'),
        ("undo", {}, '"jobId" is missing'),
        ("undo", {"jobId": 3}, '"jobId" must be text, not 3'),
        ("undo", {"jobId": "\ud800"}, "\"jobId\" is '\\ud800'"),
        ("undo", {"jobId": "second", "id": "\ud800"}, "invalid id of a request"),
        ("clone", {}, '"name" is missing'),
        ("clone", {"name": "a/b"}, "a/b"),
        ("clone", {"name": "copy", "asOf": 0}, '"asOf": as of 0'),
        ("clone", {"name": "copy", "asOf": 9}, "9"),
    ],
)
def test_invalid_requests_change_nothing(
    table: Instance, route: str, body: Any, reason: str
) -> None:
    answer = post(table, route, body)
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")
    assert reason in answer.json()["reason"]
    check_unchanged(table)


@pytest.mark.parametrize(("route", "body"), _CHANGES)
def test_requests_that_are_not_allowed_change_nothing(
    table: Instance, route: str, body: Any
) -> None:
    assert post(table, route, body, name="nope").status_code == 404
    assert post(table, route, body, token=TOKEN).status_code == 401
    assert post(table, route, body, headers={"Content-Type": "text/plain"}).status_code == 415
    reason = "the server is read-only: a test"
    answer = post(table, route, body, read_only_reason=reason)
    assert (answer.status_code, answer.json()["reason"]) == (403, reason)
    for callers in ('{"local": {"valueFields": []}, "*": {}}', '{"somebody": {}}'):
        change_table_properties(table, "t", {"sleeper.table.query.callers": callers})
        answer = post(table, route, body)
        assert (answer.status_code, answer.json()["error"]) == (403, "Forbidden")
        assert "caller 'local' may not" in answer.json()["reason"]
    change_table_properties(table, "t", {"sleeper.table.query.callers": '{"local": {}}'})
    check_unchanged(table)
    assert post(table, route, body).status_code == 200


def check_unchanged(table: Instance) -> None:
    assert read_keys(table) == [0, 1, 2, 3, 4]
    assert [ref.name for ref in table.tables.index.list()] == ["t"]
