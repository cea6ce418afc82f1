"""Parsers of messages raise only errors of `sleeper.errors`."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sleeper.deletion.message import parse_delete_message, parse_deleted_regions
from sleeper.deletion.service import check_regions
from sleeper.errors import InvalidRequestError, SleeperError
from sleeper.jobs.ingest_job import add_requester
from sleeper.jobs.query_tracker import Connection
from sleeper.partitions.region import Region
from sleeper.query.messages.leaf import (
    leaf_query_body,
    make_leaf_query,
    parse_leaf_query_message,
)
from sleeper.query.messages.query import (
    QUERY_CODEC,
    make_query,
    parse_query_message,
    query_fingerprint,
    read_query_id,
    replace_connections,
    rewrite_query_body,
)
from sleeper.query.request import check_query
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.serve.live import parse_message

SCHEMA = Schema(
    (
        Field("name", PrimitiveType.STRING),
        Field("n", PrimitiveType.INT),
        Field("l", PrimitiveType.LONG),
        Field("b", PrimitiveType.BYTE_ARRAY),
    ),
    (),
    (Field("v", PrimitiveType.STRING),),
)
BOUNDED = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
CONNECTION = Connection("https://here/live", "c1")
RANGE = {"min": 1, "minInclusive": True, "max": 7, "maxInclusive": False}
TEXT_RANGE = {"min": "YQ==", "max": None}
REGION = {"name": TEXT_RANGE, "n": RANGE, "l": RANGE, "b": TEXT_RANGE, "stringsBase64Encoded": True}
SOCKET = {"destination": "WEBSOCKET", "endpoint": "https://e", "connectionId": "c", "batchSize": 9}
QUERY: dict[str, Any] = {
    "type": "Query",
    "queryId": "q",
    "clientQueryId": "c",
    "tableName": "t",
    "tableId": "0123abcd",
    "asOf": 7,
    "regions": [REGION, {}],
    "requestedValueFields": ["v"],
    "queryTimeIteratorClassName": "A",
    "queryTimeIteratorConfig": "x",
    "resultsPublisherConfig": SOCKET,
    "statusReportDestinations": [{"destination": "DYNAMODB"}, SOCKET],
    "askedBy": ["AROA1"],
}
LEAF: dict[str, Any] = {
    **QUERY,
    "type": "LeafPartitionQuery",
    "subQueryId": "s",
    "leafPartitionId": "l",
    "partitionRegion": REGION,
    "files": ["a/b.parquet"],
    "version": 4,
    "queryTime": 9,
    "restriction": {"valueFields": ["v"], "iterator": "A", "config": "x"},
}

DELETE: dict[str, Any] = {
    "id": "d",
    "tableName": "t",
    "keys": [["a", 1, 2, "YQ=="]],
    "ranges": [["a", "b"], [None, "c"]],
    "regions": [REGION, {}],
    "askedBy": ["AROA1"],
}

NUMBERS = st.integers() | st.sampled_from(
    [2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**300, 1e308, 5.0, -0.0]
)
TEXTS = st.text(st.characters(), max_size=8) | st.sampled_from(
    [
        "true",
        "5.0",
        "-7",
        "1e9",
        "9" * 5000,
        "YQ",
        "YQ=",
        "\ud800",
        "\x00",
        "../x",
        "S3",
        "SQS",
        "2h",
    ]
)
SCALARS = st.none() | st.booleans() | NUMBERS | st.floats() | TEXTS
MEMBERS = st.sampled_from(sorted({*LEAF, *REGION, *RANGE, *SOCKET, "bucket", "compressionCodec"}))
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(MEMBERS | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def list_places(raw: Any) -> list[tuple[Any, Any]]:
    """Returns every container in the JSON with each of its keys or indexes."""
    keys = raw if isinstance(raw, dict) else range(len(raw)) if isinstance(raw, list) else ()
    return [place for key in keys for place in [(raw, key), *list_places(raw[key])]]


@st.composite
def mutants(draw: st.DrawFn, valid: dict[str, Any]) -> str:
    """Returns a valid message with up to three values replaced, removed or renamed, or bad text."""
    raw = copy.deepcopy(valid)
    for _ in range(draw(st.integers(1, 3))):
        places = list_places(raw)
        if not places:
            break
        inside, key = draw(st.sampled_from(places))
        change = draw(st.sampled_from(["replace", "replace", "replace", "remove", "rename"]))
        if change == "replace":
            inside[key] = draw(VALUES)
        elif change == "remove" or isinstance(inside, list):
            del inside[key]
        else:
            inside[draw(st.text(max_size=4))] = inside.pop(key)
    text = json.dumps(raw)
    if draw(st.integers(0, 9)) == 0:
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(st.text(max_size=3)) + text[place + draw(st.integers(0, 3)) :]
    return text


def parse_or_refuse(parse: Callable[[], Any]) -> Any:
    """Returns the result of the parser; None if it raises an error of `sleeper.errors`."""
    try:
        return parse()
    except SleeperError as error:
        str(error).encode()
        return None


@BOUNDED
@given(mutants(QUERY) | st.text(max_size=30) | VALUES.map(json.dumps))
def test_query_message_is_parsed_or_refused(body: str) -> None:
    read_query_id(body, "default")
    query_fingerprint(body)
    rewrite_query_body(body, "m1", "AROA2")
    message = parse_or_refuse(lambda: parse_query_message(body, "default"))
    if message is None:
        return
    again = json.dumps({"type": "Query", **QUERY_CODEC.to_json(message)})
    assert parse_or_refuse(lambda: parse_query_message(again, "default")) is not None
    query = parse_or_refuse(lambda: make_query(message, SCHEMA))
    if query is not None:
        assert all(isinstance(region, Region) for region in query.regions)
        check_query(query, SCHEMA)


@BOUNDED
@given(mutants(LEAF) | st.text(max_size=30) | VALUES.map(json.dumps))
def test_leaf_message_is_parsed_or_refused(body: str) -> None:
    leaf = parse_or_refuse(lambda: parse_leaf_query_message(body))
    if leaf is not None and parse_or_refuse(lambda: make_leaf_query(leaf, SCHEMA)) is not None:
        leaf_query_body(leaf).encode()


@BOUNDED
@given(mutants(DELETE) | st.text(max_size=30) | VALUES.map(json.dumps))
def test_delete_message_is_parsed_or_refused(body: str) -> None:
    again = add_requester(body, "id", "m1", "AROA2")
    message = parse_or_refuse(lambda: parse_delete_message(body, "default"))
    if message is None:
        return
    assert parse_delete_message(again, "default").requesters == ("AROA2", *message.requesters)
    regions = parse_or_refuse(lambda: parse_deleted_regions(SCHEMA, message.selection))
    assert regions is None or check_regions(regions)


@BOUNDED
@given(mutants(QUERY) | st.text(max_size=30) | VALUES.map(json.dumps))
def test_websocket_frame_is_parsed_or_refused(body: str) -> None:
    raw = parse_or_refuse(lambda: replace_connections(body, CONNECTION))
    if raw is not None:
        json.dumps(raw)
    parse_or_refuse(lambda: parse_message(body, "default"))


@pytest.mark.parametrize("depth", [30, 300, 900, 990, 100_000])
@pytest.mark.parametrize("ends", [("[", "]"), ('{"a":', "}")])
def test_deeply_nested_message_is_refused(ends: tuple[str, str], depth: int) -> None:
    value = ends[0] * depth + ("1" if ends[0] != "[" else "") + ends[1] * depth
    for valid, parse in (
        (QUERY, lambda b: parse_query_message(b, "d")),
        (LEAF, parse_leaf_query_message),
    ):
        for member in ("regions", "tableName", "resultsPublisherConfig", "whatever"):
            body = json.dumps({**valid, member: "HERE"}).replace('"HERE"', value)
            with pytest.raises(InvalidRequestError, match=r"nested|not JSON"):
                parse(body)
            query_fingerprint(body)
            rewrite_query_body(body, "m1", "AROA2")
