"""Bodies of queries: their members, and errors."""

import base64
from typing import Any

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.query.request import Query, make_key_regions, make_range_region
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.serve.rows import parse_query
from sleeper.statestore.version import PointInTime

ONE = Schema((Field("id", PrimitiveType.LONG),), (), (Field("v", PrimitiveType.STRING),))
TWO = Schema((Field("a", PrimitiveType.STRING), Field("b", PrimitiveType.BYTE_ARRAY)))


def test_empty_body_selects_the_whole_table() -> None:
    assert parse_query(ONE, {}) == Query()


def test_empty_list_of_keys_selects_no_rows() -> None:
    assert parse_query(ONE, {"keys": []}).regions == ()


def test_keys_ranges_and_other_members() -> None:
    query = parse_query(
        ONE,
        {"keys": [1, [2]], "ranges": [[5, None]], "columns": ["v"], "limit": 0, "asOf": 3},
    )
    regions = (*make_key_regions(ONE, [[1], [2]]), make_range_region(ONE, 5, None))
    assert query == Query(regions, ("v",), 0, 3)


def test_time_selects_a_version() -> None:
    query = parse_query(ONE, {"asOf": "2026-01-31T12:00:00Z"})
    assert query.version == PointInTime(1_769_860_800_000, "2026-01-31T12:00:00Z")


def test_empty_region_selects_no_rows() -> None:
    assert parse_query(ONE, {"regions": [{"id": {"min": 5, "max": 5}}]}).regions == ()


def test_keys_of_several_fields_have_base64_bytes() -> None:
    text = base64.b64encode(b"\x00\xff").decode()
    (region,) = parse_query(TWO, {"keys": [["x", text]]}).regions or ()
    assert region == make_key_regions(TWO, [["x", b"\x00\xff"]])[0]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"key": [1]}, "'key'"),
        ({"keys": 1}, '"keys" must be a list'),
        ({"keys": [1, "x"]}, r'"keys\[1\]"'),
        ({"keys": [[1, 2]]}, "2 values"),
        ({"keys": [2**63]}, r'"keys\[0\]"'),
        ({"keys": [1.5]}, r'"keys\[0\]"'),
        ({"keys": [True]}, r'"keys\[0\]"'),
        ({"ranges": [[5, 1]]}, "is empty"),
        ({"ranges": [[5]]}, r"\[min, max\]"),
        ({"regions": [{"nope": {}}]}, "'nope'"),
        ({"regions": [{"id": {"mim": 5}}]}, "'mim'"),
        ({"regions": [7]}, r'"regions\[0\]"'),
        ({"columns": "v"}, '"columns" must be a list'),
        ({"columns": [1]}, "list of names"),
        ({"limit": -1}, '"limit"'),
        ({"limit": True}, '"limit"'),
        ({"asOf": 0}, '"asOf"'),
        ({"asOf": "3"}, '"asOf"'),
        ({"asOf": [3]}, '"asOf"'),
        ({"filters": 1}, '"filters" must be text'),
        ({"filters": "nope(v)"}, "nope"),
    ],
)
def test_errors_name_the_wrong_member(body: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        parse_query(ONE, body)
