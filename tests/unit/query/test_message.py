"""Query messages: what they say, what is refused, and that they come back as they were."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import InvalidRequestError
from sleeper.partitions.region import Range
from sleeper.processing.model import IteratorCall
from sleeper.processing.restriction import Restriction
from sleeper.properties.table import CompressionCodec
from sleeper.query.destination import DestinationKind, ResultsDestination
from sleeper.query.leaf_message import (
    LeafQueryMessage,
    leaf_query_body,
    leaf_query_of,
    parse_leaf_query_message,
)
from sleeper.query.message import (
    QueryMessage,
    parse_query_message,
    query_fingerprint,
    query_id_of,
    query_message_to_json,
    query_of,
    redriven_query_body,
)
from sleeper.schema.model import Field, PrimitiveType, Schema

SCHEMA = Schema(
    (Field("name", PrimitiveType.STRING), Field("n", PrimitiveType.INT)),
    (Field("at", PrimitiveType.LONG),),
    (Field("v", PrimitiveType.STRING), Field("w", PrimitiveType.STRING)),
)
REGION = {"name": {"min": "YQ==", "max": None}}

TO_SQS = {"destination": "SQS", "sqsResultsUrl": "u"}


def body(**members):
    raw = {"type": "Query", "queryId": "q1", "tableName": "t", "regions": [REGION]}
    return json.dumps({name: v for name, v in {**raw, **members}.items() if v is not ...})


def test_a_message_of_the_least_members_asks_for_all_columns_in_the_results_bucket():
    message = parse_query_message(body(), "default")
    assert message == QueryMessage("q1", (REGION,), table_name="t")
    assert message.results.kind is DestinationKind.S3
    query = query_of(message, SCHEMA)
    assert query.columns is None
    assert [r.ranges for r in query.regions] == [(Range("a", None), Range(-(2**31), None))]


def test_a_message_of_all_members():
    message = parse_query_message(
        body(
            requestedValueFields=["w"],
            queryTimeIteratorClassName="sleeper.core.iterator.impl.AgeOffByField",
            queryTimeIteratorConfig="at,5",
            resultsPublisherConfig={"destination": "SQS", "sqsResultsUrl": "u", "batchSize": "9"},
            statusReportDestinations=[{"destination": "DYNAMODB"}],
            whatever=1,
        ),
        "default",
    )
    assert query_of(message, SCHEMA).columns == ("name", "n", "at", "w")
    assert message.iterator == IteratorCall("AgeOffByField", "at,5")
    assert message.results == ResultsDestination(DestinationKind.SQS, queue_url="u", batch_size=9)


def test_no_requested_value_field_is_the_keys_alone():
    message = parse_query_message(body(requestedValueFields=[]), "default")
    assert query_of(message, SCHEMA).columns == ("name", "n", "at")


def test_a_missing_id_is_the_messages_own():
    assert parse_query_message(body(queryId=...), "m-7").query_id == "m-7"


@pytest.mark.parametrize(
    ("members", "complaint"),
    [
        ({"type": "LeafPartitionQuery"}, "\"type\" is 'LeafPartitionQuery'"),
        ({"type": ...}, '"type" is None'),
        ({"tableName": ...}, '"tableName" or "tableId" is missing'),
        ({"tableName": 7}, '"tableName" must be text'),
        ({"queryId": "a/b"}, "\"queryId\" is 'a/b'"),
        ({"queryId": "a\nb"}, '"queryId"'),
        ({"queryId": "é" * 129}, '"queryId" is longer than 256 bytes'),
        ({"queryId": "\ud800"}, '"queryId" must be text'),
        ({"regions": ...}, '"regions" must be a list'),
        ({"regions": [7]}, '"regions" must be a list'),
        ({"requestedValueFields": "v"}, '"requestedValueFields" must be a list'),
        ({"queryTimeIteratorConfig": "x"}, "given without a name"),
        ({"queryTimeIteratorClassName": {}}, '"queryTimeIteratorClassName" must be text'),
        ({"resultsPublisherConfig": "S3"}, '"resultsPublisherConfig" must be an object'),
        (
            {"resultsPublisherConfig": {"destination": "FTP"}},
            "'FTP': expected one of S3, SQS, WEBSOCKET, NoResultsOutput",
        ),
        ({"resultsPublisherConfig": {"destination": "SQS"}}, "sqsResultsUrl"),
        (
            {"resultsPublisherConfig": {**TO_SQS, "batchSize": 0}},
            "batchSize.*1 or more, not 0",
        ),
        (
            {"resultsPublisherConfig": {"destination": "S3", "compressionCodec": "zip"}},
            "compressionCodec.*'zip'",
        ),
        ({"resultsPublisherConfig": {"destination": "WEBSOCKET"}}, "connectionId"),
        ({"statusReportDestinations": {}}, '"statusReportDestinations" must be a list'),
        ({"statusReportDestinations": [{"destination": "S3"}]}, r"Destinations\[0\].*DYNAMODB"),
    ],
)
def test_what_is_wrong_is_named(members, complaint):
    with pytest.raises(InvalidRequestError, match=complaint) as refusal:
        parse_query_message(body(**members), "default")
    assert str(refusal.value).startswith("query message: ")


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "7"])
def test_what_is_no_object_is_refused(text):
    with pytest.raises(InvalidRequestError, match="query message"):
        parse_query_message(text, "default")
    assert query_id_of(text, "default") == "default"


def test_a_wrong_message_is_refused_under_its_own_id():
    assert query_id_of(body(regions=...), "default") == "q1"
    assert query_id_of(body(queryId="a/b"), "default") == "default"


@pytest.mark.parametrize(
    ("region", "complaint"),
    [
        ({"n": {"min": 5, "max": 1}}, r'"regions\[1\]": .*holds nothing: min 5'),
        ({"n": {"min": "a", "max": None}}, "field 'n'"),
        ({"n": {"min": 2**31, "max": None}}, "does not fit"),
        ({"name": {"min": "?", "max": None}}, "base64"),
        ({"v": {}}, "no row key field"),
    ],
)
def test_a_region_that_does_not_fit_the_schema_is_named(region, complaint):
    message = parse_query_message(body(regions=[REGION, region]), "default")
    with pytest.raises(InvalidRequestError, match=complaint):
        query_of(message, SCHEMA)


def test_a_value_field_that_is_not_there_is_named():
    message = parse_query_message(body(requestedValueFields=["x"]), "default")
    with pytest.raises(InvalidRequestError, match=r"requestedValueFields.*no value field 'x'"):
        query_of(message, SCHEMA)


NAMES = st.text("abé-", min_size=1)
DESTINATIONS = st.one_of(
    st.builds(
        ResultsDestination,
        st.just(DestinationKind.S3),
        st.none() | NAMES,
        st.none() | st.sampled_from(CompressionCodec),
    ),
    st.builds(
        ResultsDestination,
        st.just(DestinationKind.SQS),
        queue_url=NAMES,
        batch_size=st.none() | st.integers(1, 10**6),
    ),
    st.just(ResultsDestination(DestinationKind.NOWHERE)),
)
MESSAGES = st.builds(
    QueryMessage,
    NAMES,
    st.lists(st.just(REGION), max_size=2).map(tuple),
    NAMES,
    st.none() | NAMES,
    st.none() | st.lists(NAMES, max_size=2).map(tuple),
    st.none() | st.builds(IteratorCall, st.sampled_from(["A", "B"]), NAMES),
    DESTINATIONS,
)
LEAVES = st.builds(
    LeafQueryMessage,
    MESSAGES.filter(lambda message: message.table_id is not None),
    NAMES,
    NAMES,
    st.just(REGION),
    st.lists(NAMES, max_size=2).map(tuple),
    st.none() | st.integers(0, 2**50),
    st.none() | st.integers(0, 2**50),
    st.builds(
        Restriction,
        st.none() | st.lists(NAMES, max_size=2).map(tuple),
        st.none() | st.builds(IteratorCall, st.sampled_from(["A", "B"]), NAMES),
    ),
)


@given(MESSAGES)
def test_a_message_comes_back_from_json_as_it_was(message):
    assert parse_query_message(json.dumps(query_message_to_json(message)), "") == message


@given(LEAVES)
def test_a_subquery_comes_back_from_its_body_as_it_was(message):
    assert parse_leaf_query_message(leaf_query_body(message)) == message


def test_a_subquery_reads_what_its_regions_and_its_leaf_have_in_common():
    leaf = {"name": {"min": "Yg==", "max": "Yw=="}}
    far = {"name": {"min": "eA==", "max": None}}
    query = QueryMessage("q", (REGION, far), None, "i")
    found = leaf_query_of(LeafQueryMessage(query, "s", "l", leaf, version=4, now_ms=9), SCHEMA)
    assert [r.ranges[0] for r in found.regions] == [Range("b", "c")]
    assert (found.version, found.now_ms) == (4, 9)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"type": "Query"}, '"type"'),
        ({"subQueryId": None}, '"subQueryId" is missing'),
        ({"partitionRegion": []}, '"partitionRegion" must be a region'),
        ({"version": "1"}, '"version" must be a whole number'),
        ({"restriction": {"columns": []}}, "may have"),
    ],
)
def test_what_is_wrong_with_a_subquery_is_named(change, complaint):
    leaf = LeafQueryMessage(QueryMessage("q", (REGION,), None, "i"), "s", "l", REGION)
    raw = {**json.loads(leaf_query_body(leaf)), **change}
    with pytest.raises(InvalidRequestError, match=complaint):
        parse_leaf_query_message(json.dumps(raw))


def test_a_redriven_message_is_the_same_query_of_the_same_caller():
    raw = {"type": "Query", "tableName": "t", "regions": []}
    body = redriven_query_body(json.dumps(raw), "m1", "AROA1:x")
    message = parse_query_message(body, "m2")
    assert (message.query_id, message.asked_by) == ("m1", ("AROA1:x",))
    again = redriven_query_body(body, "m2", "AROA2")
    assert parse_query_message(again, "m3").asked_by == ("AROA2", "AROA1:x")
    assert query_fingerprint(again) == query_fingerprint(json.dumps(raw))
    assert query_fingerprint(again) != query_fingerprint(json.dumps({**raw, "regions": [{}]}))
    for nonsense in ("{", "[]", '{"askedBy": 7}'):
        assert redriven_query_body(nonsense, "m1", "AROA1") == nonsense


def test_a_leaf_message_has_only_characters_that_sqs_takes():
    region = {"name": {"min": "a\ufffe\uffff\x01é", "max": None}}
    query = QueryMessage("q", (region,), table_id="t")
    message = LeafQueryMessage(query, "s", "root", region)
    body = leaf_query_body(message)
    assert not any(character in body for character in "\ufffe\uffff\x01")
    assert "é" in body
    assert parse_leaf_query_message(body) == message
