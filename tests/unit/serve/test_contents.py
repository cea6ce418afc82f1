"""The contents of a table over HTTP: partitions, files, followers and holds."""

from typing import Any

import pyarrow as pa
import pytest

from sleeper.admin.properties import change_table_properties
from sleeper.admin.tables import create_follower, create_table
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from tests.unit.serve.client import request

_SCHEMA = '{"rowKeyFields":[{"name":"k","type":"LongType"}]}'
_PLACES = ("partitions", "files", "followers")


@pytest.fixture
def table(instance: Instance) -> Instance:
    """Table `t` of two files over four leaves, with 10, 10, 10 and 70 rows."""
    create_table(instance, "t", _SCHEMA, {}, [10, 20, 30])
    for start in (0, 50):
        keys = pa.array(range(start, start + 50), pa.int64())
        batch = pa.RecordBatch.from_arrays([keys], schema=_arrow_schema())
        ingest_rows(instance, "t", [batch], f"load-{start}")
    return instance


def _arrow_schema() -> pa.Schema:
    return pa.schema([pa.field("k", pa.int64(), nullable=False)])


def read(instance: Instance, path: str) -> Any:
    answer = request(instance, "GET", f"/tables/t/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_partitions_have_the_sizes_of_those_below(table: Instance) -> None:
    answer = read(table, "partitions")
    assert (answer["partitions"], answer["leaves"]) == (7, 4)
    tree = answer["tree"]
    assert [each["depth"] for each in tree] == [0, 1, 1, 2, 2, 2, 2]
    assert [each["rows"] for each in tree] == [100, 20, 80, 10, 10, 10, 70]
    assert [each["leaves"] for each in tree] == [4, 2, 2, 1, 1, 1, 1]
    assert [each["references"] for each in tree] == [5, 2, 3, 1, 1, 1, 2]
    root = tree[0]
    assert root["bytes"] == sum(each["bytes"] for each in tree[3:])
    assert (root["ownRows"], root["ownReferences"], root["children"]) == (0, 0, 2)
    assert [each["keys"] for each in tree[:3]] == ["everything", "k < 20", "k >= 20"]


def test_the_bytes_of_all_partitions_are_those_of_the_files(table: Instance) -> None:
    root = read(table, "partitions?limit=1")["tree"][0]
    files = sum(each["bytes"] for each in read(table, "files")["files"])
    assert files - 7 <= root["bytes"] <= files


def test_a_limit_keeps_the_upper_levels_and_a_root_shows_the_lower(table: Instance) -> None:
    answer = read(table, "partitions?limit=3")
    assert answer["partitions"] == 7
    assert [each["depth"] for each in answer["tree"]] == [0, 1, 1]
    right = answer["tree"][2]
    below = read(table, f"partitions?root={right['partition']}")
    assert (below["partitions"], below["leaves"]) == (3, 2)
    assert below["tree"][0] == right
    assert [each["keys"] for each in below["tree"][1:]] == ["k < 30", "k >= 30"]
    assert read(table, "partitions?limit=0")["tree"] == []


def test_an_unknown_partition_is_not_found(table: Instance) -> None:
    answer = request(table, "GET", "/tables/t/partitions?root=nope")
    assert answer.status_code == 404
    assert "no partition 'nope'" in answer.json()["reason"]


def test_files_come_in_pages(table: Instance) -> None:
    first, second = (read(table, f"files?offset={n}&limit=1") for n in (0, 1))
    assert first["total"] == second["total"] == 2
    assert [each["smallest_key"] for each in first["files"] + second["files"]] == [[0], [50]]
    assert read(table, "files?offset=2")["files"] == []


def test_followers_have_their_lag(table: Instance) -> None:
    version = table.table("t").state.newest_number()
    create_follower(table, "t", "reader", version - 1)
    answer = read(table, "followers")
    assert answer["version"] == version + 1
    (follower,) = answer["followers"]
    assert (follower["follower"], follower["position"], follower["lag"]) == (
        "reader",
        version - 1,
        1,
    )
    assert answer["holds"] == []


@pytest.mark.parametrize("place", _PLACES)
def test_callers_who_see_a_part_of_the_table_get_nothing(table: Instance, place: str) -> None:
    change_table_properties(table, "t", {"sleeper.table.query.callers": '{"somebody": {}}'})
    answer = request(table, "GET", f"/tables/t/{place}")
    assert answer.status_code == 400
    assert "caller 'local' may not" in answer.json()["reason"]


@pytest.mark.parametrize("place", _PLACES)
def test_an_unknown_table_is_not_found(instance: Instance, place: str) -> None:
    assert request(instance, "GET", f"/tables/nope/{place}").status_code == 404


@pytest.mark.parametrize("path", ["partitions?limit=x", "files?offset=-1", "files?limit=1.5"])
def test_invalid_numbers_are_refused(table: Instance, path: str) -> None:
    assert request(table, "GET", f"/tables/t/{path}").status_code == 400
