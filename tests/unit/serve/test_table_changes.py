"""Tables that are created, changed and deleted over HTTP."""

import json
from typing import Any

import httpx
import pytest

from sleeper.admin.properties import change_table_properties, get_table_property
from sleeper.admin.tables import create_table
from sleeper.instance import Instance
from tests.unit.serve.client import TOKEN, post, request

SCHEMA: dict[str, Any] = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [{"name": "v", "type": "StringType"}],
}
READ_ONLY = "the server is read-only: a test"
GC_DELAY = "sleeper.table.gc.delay.minutes"


def patch(instance: Instance, body: object, name: str = "t", **options: Any) -> httpx.Response:
    headers = {"Content-Type": "application/json"}
    content = json.dumps(body).encode()
    path = f"/tables/{name}"
    return request(instance, "PATCH", path, content=content, headers=headers, **options)


def leaf_count(instance: Instance, name: str) -> int:
    with instance.table(name).state.reading() as state:
        return len(list(state.partitions.leaves()))


def test_a_table_is_created_with_properties_and_split_points(instance: Instance) -> None:
    body = {
        "name": "t",
        "schema": SCHEMA,
        "properties": {GC_DELAY: "7"},
        "splitPoints": [-5, "10"],
    }
    answer = post(instance, "/tables", body)
    assert answer.status_code == 201, answer.text
    assert answer.json() == {"name": "t", "id": instance.table("t").ref.id}
    assert leaf_count(instance, "t") == 3
    assert get_table_property(instance, "t", GC_DELAY) == "7"
    again = post(instance, "/tables", body)
    assert (again.status_code, again.json()["error"]) == (409, "Conflict")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"name": None}, '"name" is missing'),
        ({"name": "a/b"}, "table name 'a/b'"),
        ({"schema": "x"}, '"schema" must be an object'),
        ({"schema": {"rowKeyFields": []}}, "row key"),
        ({"properties": {"sleeper.table.nope": "1"}}, "sleeper.table.nope"),
        ({"properties": {GC_DELAY: 7}}, "must be text"),
        ({"properties": []}, '"properties" must be an object'),
        ({"splitPoints": ["x"]}, '"splitPoints[0]"'),
        ({"splitPoints": [1, ""]}, '"splitPoints[1]" must be one value'),
        ({"splitPoints": [1.5]}, '"splitPoints[0]" must be text or an integer'),
        ({"splitPoints": [5, 1]}, "split point"),
        ({"columns": []}, "unknown member 'columns'"),
    ],
)
def test_invalid_tables_are_refused(
    instance: Instance, change: dict[str, Any], reason: str
) -> None:
    answer = post(instance, "/tables", {"name": "t", "schema": SCHEMA, **change})
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")
    assert reason in answer.json()["reason"]
    assert list(instance.tables.index.list()) == []


def test_a_request_of_gchq_is_answered_as_theirs(instance: Instance) -> None:
    text = {**SCHEMA, "rowKeyFields": [{"name": "k", "type": "StringType"}]}
    properties = {"sleeper.table.name": "t", GC_DELAY: "7"}
    body = {"properties": properties, "schema": text, "splitPoints": ["a", "m", "z"]}
    answer = post(instance, "/sleeper/tables", body)
    assert answer.status_code == 201, answer.text
    assert answer.json() == {"tableId": instance.table("t").ref.id, "tableName": "t"}
    assert leaf_count(instance, "t") == 4
    again = post(instance, "/sleeper/tables", body)
    assert (again.status_code, again.json()["error"]) == (409, "table_already_exists")
    assert "already exists" in again.json()["message"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"schema": SCHEMA}, "sleeper.table.name"),
        ({"properties": {"sleeper.table.name": "t"}}, '"schema" must be an object'),
        ([], "JSON object"),
    ],
)
def test_invalid_requests_of_gchq_are_answered_as_theirs(
    instance: Instance, body: object, message: str
) -> None:
    answer = post(instance, "/sleeper/tables", body)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert message in answer.json()["message"]


def test_properties_are_set_and_unset(instance: Instance) -> None:
    create_table(instance, "t", json.dumps(SCHEMA))
    answer = patch(instance, {"properties": {GC_DELAY: "7"}})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "name": "t",
        "online": True,
        "properties": {GC_DELAY: "7"},
        "warnings": [],
    }
    assert get_table_property(instance, "t", GC_DELAY) == "7"
    default = patch(instance, {"properties": {GC_DELAY: ""}}).json()["properties"][GC_DELAY]
    assert get_table_property(instance, "t", GC_DELAY) == default != "7"


def test_a_table_is_put_offline_and_online(instance: Instance) -> None:
    create_table(instance, "t", json.dumps(SCHEMA))
    assert patch(instance, {"online": False}).json()["online"] is False
    assert instance.table("t").ref.online is False
    assert patch(instance, {"online": True}).json()["online"] is True


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "no changes"),
        ({"online": 1}, '"online" must be true or false'),
        ({"properties": {"sleeper.table.schema": "{}"}}, "cannot be set"),
        ({"properties": {GC_DELAY: "x"}, "online": False}, GC_DELAY),
        ({"name": "u"}, "unknown member 'name'"),
    ],
)
def test_invalid_changes_change_nothing(instance: Instance, body: object, reason: str) -> None:
    create_table(instance, "t", json.dumps(SCHEMA))
    answer = patch(instance, body)
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")
    assert reason in answer.json()["reason"]
    assert instance.table("t").ref.online is True


def test_a_table_is_deleted(instance: Instance) -> None:
    table_id = create_table(instance, "t", json.dumps(SCHEMA)).id
    answer = request(instance, "DELETE", "/tables/t")
    assert (answer.status_code, answer.json()) == (200, {"name": "t", "id": table_id})
    assert request(instance, "DELETE", "/tables/t").status_code == 404
    assert patch(instance, {"online": False}).status_code == 404


def test_a_read_only_server_and_one_with_a_token_change_no_table(instance: Instance) -> None:
    create_table(instance, "t", json.dumps(SCHEMA))
    new = {"name": "u", "schema": SCHEMA}
    as_gchq = {"properties": {"sleeper.table.name": "u"}, "schema": SCHEMA}
    for options, status in (({"read_only_reason": READ_ONLY}, 403), ({"token": TOKEN}, 401)):
        answers = [
            post(instance, "/tables", new, **options),
            post(instance, "/sleeper/tables", as_gchq, **options),
            patch(instance, {"online": False}, **options),
            request(instance, "DELETE", "/tables/t", **options),
        ]
        assert [answer.status_code for answer in answers] == [status] * 4
    assert [(ref.name, ref.online) for ref in instance.tables.index.list()] == [("t", True)]


def test_restricted_callers_may_not_change_a_table(instance: Instance) -> None:
    create_table(instance, "t", json.dumps(SCHEMA))
    callers = '{"local": {"valueFields": []}, "*": {}}'
    change_table_properties(instance, "t", {"sleeper.table.query.callers": callers})
    unset = {"properties": {"sleeper.table.query.callers": ""}}
    for answer in (patch(instance, unset), request(instance, "DELETE", "/tables/t")):
        assert (answer.status_code, answer.json()["error"]) == (403, "Forbidden")
