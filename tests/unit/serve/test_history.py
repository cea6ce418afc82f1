"""The history of a table over HTTP."""

import json

import httpx
import pytest

from sleeper.admin.properties import change_table_properties
from sleeper.admin.tables import create_follower, create_table
from sleeper.deletion.keys import delete_rows
from sleeper.instance import Instance
from sleeper.partitions.region import key_region
from sleeper.query.service import read_schema
from sleeper.reports.history import describe_history
from sleeper.reports.output import json_rows
from tests.unit.serve.client import request

_SCHEMA = '{"rowKeyFields":[{"name":"k","type":"LongType"}]}'


@pytest.fixture
def table(instance: Instance) -> Instance:
    create_table(instance, "t", _SCHEMA)
    for key in range(3):
        delete_rows(instance, "t", [key_region(read_schema(instance, "t"), [key])], f"erase-{key}")
    return instance


def get(instance: Instance, path: str) -> httpx.Response:
    return request(instance, "GET", path)


def test_the_newest_transactions_come_first_as_on_the_command_line(table: Instance) -> None:
    answer = get(table, "/tables/t/history?limit=2").json()
    assert answer["recorded"] == 4
    shown = [(each["number"], each["operation"], each["job"]) for each in answer["transactions"]]
    assert shown == [(4, "delete rows", "erase-2"), (3, "delete rows", "erase-1")]
    with table.table("t").state.reading() as state:
        listing = describe_history("t", state.history.newest(2))
    assert answer["transactions"] == json.loads(json.dumps(list(json_rows(listing))))
    assert len(get(table, "/tables/t/history").json()["transactions"]) == 4
    assert get(table, "/tables/t/history?limit=0").json()["transactions"] == []


def test_the_upkeep_is_hidden_unless_all_is_asked_for(table: Instance) -> None:
    create_follower(table, "t", "reader")
    hidden, shown = (get(table, f"/tables/t/history?limit=1{q}").json() for q in ("", "&all=true"))
    assert (hidden["recorded"], hidden["hidden"]) == (4, 1)
    assert [each["operation"] for each in hidden["transactions"]] == ["delete rows"]
    assert (shown["recorded"], shown["hidden"]) == (5, 0)
    assert [each["operation"] for each in shown["transactions"]] == ["create follower"]
    refused = get(table, "/tables/t/history?all=yes")
    assert refused.status_code == 400
    assert "\"all\" must be true or false, not 'yes'" in refused.json()["reason"]


@pytest.mark.parametrize("limit", ["-1", "x", "1.5", "9" * 20])
def test_an_invalid_limit_is_refused(table: Instance, limit: str) -> None:
    answer = get(table, f"/tables/t/history?limit={limit}")
    assert answer.status_code == 400
    reason = f'"limit" must be an integer of less than 19 digits, not {limit!r}'
    assert reason in answer.json()["reason"]


def test_an_unknown_table_is_not_found(instance: Instance) -> None:
    assert get(instance, "/tables/nope/history").status_code == 404


@pytest.mark.parametrize("callers", ['{"local": {"valueFields": []}, "*": {}}', '{"somebody": {}}'])
def test_callers_who_see_a_part_of_the_table_get_no_history(table: Instance, callers: str) -> None:
    change_table_properties(table, "t", {"sleeper.table.query.callers": callers})
    answer = get(table, "/tables/t/history")
    assert answer.status_code == 400
    assert "caller 'local' may not" in answer.json()["reason"]
