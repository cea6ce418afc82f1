"""Snapshot tables over HTTP: their versions, the expiry of these, reads before the first load."""

import json

import pyarrow as pa
import pytest

from sleeper.admin.properties import change_table_properties
from sleeper.admin.tables import create_table
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.jobs.queue import Message
from sleeper.query_service.service import run_query_message
from tests.unit.serve.client import post, read_keys, request

_SCHEMA = '{"rowKeyFields":[{"name":"k","type":"LongType"}]}'


@pytest.fixture
def table(instance: Instance) -> Instance:
    create_table(instance, "t", _SCHEMA, {"sleeper.table.type": "snapshot"})
    return instance


def load(instance: Instance, job: str, *keys: int) -> int:
    batch = pa.record_batch({"k": pa.array(keys, pa.int64())})
    return ingest_rows(instance, "t", [batch], job_id=job).number or 0


def test_versions_are_listed_and_expire(table: Instance) -> None:
    first, second = load(table, "a", 1, 2), load(table, "b", 3)
    versions = request(table, "GET", "/tables/t/snapshots").json()["versions"]
    described = [(each["version"], each["load"], each["rows"]) for each in versions]
    assert described == [(second, "b", 1), (first, "a", 2)]
    assert versions[0]["publishedAt"].endswith("Z")
    for body in ({"dryRun": True}, {}):
        expired = post(table, "/tables/t/snapshots/expire", body).json()["expired"]
        assert [each["version"] for each in expired] == [first]
        assert expired[0]["expiresAt"] == versions[0]["publishedAt"]
    assert len(request(table, "GET", "/tables/t/snapshots").json()["versions"]) == 1
    assert post(table, "/tables/t/snapshots/expire", {}).json() == {"expired": []}
    assert read_keys(table) == [3]
    old = post(table, "/tables/t/query", {"asOf": first})
    assert (old.status_code, f"snapshot version {first} expired" in old.text) == (400, True)


def test_requests_that_do_not_fit_are_refused(table: Instance) -> None:
    create_table(table, "other", _SCHEMA)
    for answer in (
        request(table, "GET", "/tables/other/snapshots"),
        post(table, "/tables/other/snapshots/expire", {}),
    ):
        assert answer.status_code == 400
        assert "'other'" in answer.text
        assert "not a snapshot table" in answer.text
    wrong = post(table, "/tables/t/snapshots/expire", {"dryRun": 1})
    assert (wrong.status_code, '\\"dryRun\\" must be true or false' in wrong.text) == (400, True)
    refused = post(table, "/tables/t/snapshots/expire", {}, read_only_reason="it is")
    assert refused.status_code == 403


def test_callers_who_see_a_part_of_the_table_get_no_versions(table: Instance) -> None:
    load(table, "a", 1)
    callers = '{"local": {"valueFields": []}, "*": {}}'
    change_table_properties(table, "t", {"sleeper.table.query.callers": callers})
    for answer, status in (
        (request(table, "GET", "/tables/t/snapshots"), 400),
        (post(table, "/tables/t/snapshots/expire", {}), 403),
    ):
        assert answer.status_code == status
        assert "require unrestricted access" in answer.json()["reason"]


def test_a_read_before_the_first_load_names_the_table(table: Instance) -> None:
    for path, body in (("/tables/t/query", {}), ("/sql", {"statement": "SELECT * FROM t"})):
        answer = post(table, path, body)
        assert answer.status_code == 400
        assert "table 't': there is no snapshot yet" in answer.json()["reason"]
    assert request(table, "GET", "/tables/t/snapshots").json() == {"versions": []}


def test_a_query_by_message_before_the_first_load_names_the_table(table: Instance) -> None:
    all_rows = {"k": {"min": None, "max": None}}
    table_id = table.table("t").ref.id
    body = {"type": "Query", "queryId": "q", "tableId": table_id, "regions": [all_rows]}
    run_query_message(table, Message("m", json.dumps(body), "receipt", 1, 0))
    answer = request(table, "GET", "/queries/q").json()
    assert answer["state"] == "FAILED"
    assert "table 't': there is no snapshot yet" in json.dumps(answer)
