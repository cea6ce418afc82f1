"""The change feed of a table over HTTP."""

import io
import json
from typing import Any

import httpx
import pyarrow as pa
import pytest

from sleeper.admin.properties import change_table_properties
from sleeper.admin.tables import create_table
from sleeper.deletion.keys import delete_rows
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.partitions.region import key_region
from sleeper.query.changes.read import feed_schema
from sleeper.query.changes.service import make_changes_request, open_changes
from sleeper.query.rows.output import write_json
from sleeper.query.service import read_schema
from sleeper.serve.service import ServerLimits
from tests.unit.serve.client import TOKEN, request

_SCHEMA = """{"rowKeyFields":[{"name":"k","type":"LongType"}],
 "valueFields":[{"name":"v","type":"StringType"}]}"""
_ARROW = {"Accept": "application/vnd.apache.arrow.stream"}


@pytest.fixture
def table(instance: Instance) -> Instance:
    """A table with 3 rows in transaction 2, 4 in transaction 3, and a delete in transaction 4."""
    create_table(instance, "t", _SCHEMA)
    for start, end in ((0, 3), (3, 7)):
        keys = list(range(start, end))
        ingest_rows(instance, "t", [pa.record_batch({"k": keys, "v": [f"v{k}" for k in keys]})])
    delete_rows(instance, "t", [key_region(read_schema(instance, "t"), [1])], "erase-1")
    return instance


def get(
    instance: Instance,
    parameters: str = "",
    headers: dict[str, str] | None = None,
    name: str = "t",
    **options: Any,
) -> httpx.Response:
    path = f"/tables/{name}/changes{parameters}"
    return request(instance, "GET", path, headers=headers, **options)


def numbers(answer: httpx.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line)["number"] for line in answer.text.splitlines()]


def test_lines_are_those_of_the_command_line(table: Instance) -> None:
    expected = io.BytesIO()
    with open_changes(table, "t", make_changes_request()) as reader:
        batches = [change.to_arrow() for change in reader]
        write_json(feed_schema(reader.schema), batches, expected)
    answer = get(table)
    assert answer.content == expected.getvalue()
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert numbers(answer) == [2] * 3 + [3] * 4 + [4]


def test_an_arrow_stream_has_the_same_changes(table: Instance) -> None:
    with pa.ipc.open_stream(get(table, "?from=4", _ARROW).content) as stream:
        rows = stream.read_all()
    assert rows.schema == feed_schema(read_schema(table, "t"))
    assert rows["operation"].to_pylist() == ["delete_region"]
    assert rows["job"].to_pylist() == ["erase-1"]


def test_parts_are_chosen_by_number_and_age(table: Instance) -> None:
    assert numbers(get(table, "?from=3&to=3")) == [3] * 4
    assert numbers(get(table, "?from=5")) == []
    assert numbers(get(table, "?since=1d&to=2")) == [2] * 3


def test_a_limit_never_divides_a_transaction(table: Instance) -> None:
    pages, first = [], 1
    while found := numbers(get(table, f"?from={first}&limit=2")):
        pages.append(found)
        first = found[-1] + 1
    assert pages == [[2] * 3, [3] * 4, [4]]
    assert numbers(get(table, "?limit=3")) == [2] * 3
    assert numbers(get(table, "?limit=4")) == [2] * 3 + [3] * 4


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ("?from=x", "\"from\" must be an integer of less than 19 digits, not 'x'"),
        ("?to=0", "the end is 0 (expected a transaction number)"),
        ("?from=3&to=2", "the end is 2 (expected the start, 3, or more)"),
        ("?from=1&since=2d", "two starts"),
        ("?since=yesterday", "'yesterday'"),
        ("?limit=0", '"limit" is 0 (expected 1 or more)'),
        ("?limit=-1", '"limit" must be'),
        ("?from=6", "transaction 6 does not exist yet: the newest is 4"),
        ("?to=5", "transaction 5 does not exist yet: the newest is 4"),
        ("?follower=a", "unknown parameter 'follower' (expected from, to, since, limit)"),
    ],
)
def test_invalid_parts_are_refused(table: Instance, parameters: str, reason: str) -> None:
    answer = get(table, parameters)
    assert (answer.status_code, answer.json()["error"]) == (400, "InvalidRequest")
    assert reason in answer.json()["reason"]


def test_csv_has_a_line_per_change(table: Instance) -> None:
    answer = get(table, headers={"Accept": "text/csv"})
    names, *lines = answer.text.splitlines()
    assert names.startswith('"number","time"')
    assert [int(line.partition(",")[0]) for line in lines] == [2] * 3 + [3] * 4 + [4]


def test_unknown_tables_and_formats_are_refused(table: Instance) -> None:
    assert get(table, name="nope").status_code == 404
    assert get(table, headers={"Accept": "text/html"}).status_code == 406


def test_a_server_with_a_token_answers_only_with_it(table: Instance) -> None:
    assert get(table, token=TOKEN).status_code == 401
    answer = get(table, headers={"Authorization": f"Bearer {TOKEN}"}, token=TOKEN)
    assert len(numbers(answer)) == 8


@pytest.mark.parametrize("callers", ['{"local": {"valueFields": []}, "*": {}}', '{"somebody": {}}'])
def test_callers_who_see_a_part_of_the_table_get_no_feed(table: Instance, callers: str) -> None:
    change_table_properties(table, "t", {"sleeper.table.query.callers": callers})
    answer = get(table)
    assert answer.status_code == 400
    assert "caller 'local' may not" in answer.json()["reason"]


def test_a_feed_ends_at_the_time_limit(table: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = ServerLimits(seconds_max=5)
    now = iter(range(0, 1_000_000, 2))
    monkeypatch.setattr("sleeper.query.result.time.monotonic", lambda: float(next(now)))
    answer = get(table, limits=limits)
    assert answer.status_code == 400
    assert "takes more than 5 s" in answer.json()["reason"]


def test_a_larger_feed_than_a_bounded_answer_is_refused(table: Instance) -> None:
    answer = get(table, limits=ServerLimits(answer_bytes_max=500))
    assert answer.status_code == 413
    assert numbers(get(table, "?from=4", limits=ServerLimits(answer_bytes_max=500))) == [4]
