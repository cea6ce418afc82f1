"""Query messages: members, errors, round trips."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import InvalidRequestError
from sleeper.jobs.query_tracker import Connection
from sleeper.partitions.region import Range
from sleeper.processing.model import (
    AgeOff,
    Aggregation,
    AggregationOp,
    IteratorCall,
    JsonContains,
    Processing,
)
from sleeper.processing.restriction import Restriction
from sleeper.properties.table import CompressionCodec
from sleeper.query.messages.destination import (
    DestinationKind,
    ResultsDestination,
    StatusKind,
)
from sleeper.query.messages.leaf import (
    LeafQueryBodies,
    LeafQueryMessage,
    leaf_query_body,
    make_leaf_query,
    parse_leaf_query_message,
)
from sleeper.query.messages.query import (
    QUERY_CODEC,
    QueryMessage,
    make_query,
    parse_query_message,
    query_fingerprint,
    read_query_id,
    rewrite_query_body,
)
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.statestore.version import PointInTime

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


def test_minimal_message_selects_all_columns_for_the_results_bucket():
    message = parse_query_message(body(), "default")
    assert message == QueryMessage("q1", (REGION,), table_name="t")
    assert message.results.kind is DestinationKind.S3
    query = make_query(message, SCHEMA)
    assert query.columns is None
    assert [r.ranges for r in query.regions] == [(Range("a", None), Range(-(2**31), None))]


def test_filters_and_aggregations_are_those_of_the_query():
    message = parse_query_message(
        body(queryTimeFilters="ageOff(at,1000)", queryTimeAggregations="max(v), min(w)"), ""
    )
    assert make_query(message, SCHEMA).processing == Processing(
        (AgeOff("at", 1000),),
        (Aggregation(AggregationOp.MAX, "v"), Aggregation(AggregationOp.MIN, "w")),
    )
    for none in (None, "", ...):
        message = parse_query_message(body(queryTimeFilters=none, queryTimeAggregations=none), "")
        assert make_query(message, SCHEMA).processing == Processing()


@pytest.mark.parametrize(
    ("member", "value", "problem"),
    [
        ("queryTimeFilters", "before(at,1)", "unknown filter 'before'"),
        ("queryTimeFilters", 7, "is 7 \\(expected text\\)"),
        ("queryTimeAggregations", "mean(v)", "unknown aggregation: 'mean'"),
    ],
)
def test_a_wrong_filter_or_aggregation_names_its_member(member, value, problem):
    with pytest.raises(InvalidRequestError, match=f'query message: "{member}".*{problem}'):
        parse_query_message(body(**{member: value}), "")


def test_message_with_all_members():
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
    assert make_query(message, SCHEMA).columns == ("name", "n", "at", "w")
    assert message.iterator == IteratorCall("AgeOffByField", "at,5")
    assert message.results == ResultsDestination(DestinationKind.SQS, queue_url="u", batch_size=9)


def test_empty_list_of_value_fields_selects_the_keys():
    message = parse_query_message(body(requestedValueFields=[]), "default")
    assert make_query(message, SCHEMA).columns == ("name", "n", "at")


def test_missing_query_id_defaults_to_the_message_id():
    assert parse_query_message(body(queryId=...), "m-7").query_id == "m-7"


@pytest.mark.parametrize(
    ("members", "complaint"),
    [
        ({"type": "LeafPartitionQuery"}, "\"type\" is 'LeafPartitionQuery'"),
        ({"type": ...}, '"type" is None'),
        ({"tableName": ...}, '"tableName" or "tableId" is missing'),
        ({"tableName": 7}, r'"tableName" is 7 \(expected text\)'),
        ({"queryId": "é" * 129}, r'"queryId" is .* \(expected at most 256 bytes\)'),
        ({"queryId": "\ud800"}, r'"queryId" is .* \(expected Unicode text\)'),
        ({"asOf": 0}, r'"asOf" is 0 \(expected a transaction number of 1 or more, a time'),
        ({"asOf": True}, r'"asOf" is True'),
        ({"asOf": 2.5}, r'"asOf" is 2.5'),
        ({"asOf": "soon"}, r'"asOf" is .soon. .*or an age such as 2h'),
        ({"asOf": [2]}, r'"asOf" is \[2\]'),
        ({"regions": ...}, r'"regions" is missing \(expected a list\)'),
        ({"regions": [7]}, r'"regions\[0\]" is 7 \(expected an object\)'),
        ({"requestedValueFields": "v"}, r'"requestedValueFields" is .v. \(expected a list\)'),
        ({"queryTimeIteratorConfig": "x"}, "given without a name"),
        (
            {"queryTimeIteratorClassName": {}},
            'ClassName" is {} .expected text',
        ),
        (
            {"resultsPublisherConfig": "S3"},
            'Config" is .S3. .expected an object with a "destination"',
        ),
        (
            {"resultsPublisherConfig": {"destination": "FTP"}},
            r"'FTP' \(expected one of S3, SQS, WEBSOCKET, NoResultsOutput",
        ),
        ({"resultsPublisherConfig": {"destination": ["S3"]}}, r"\['S3'\] \(expected one of"),
        ({"resultsPublisherConfig": {"bucket": "\ud800"}}, "bucket.*expected Unicode text"),
        ({"resultsPublisherConfig": {**TO_SQS, "batchSize": 2**63}}, "batchSize"),
        ({"resultsPublisherConfig": {**TO_SQS, "batchSize": "5.5"}}, "batchSize"),
        ({"resultsPublisherConfig": {**TO_SQS, "batchSize": float("nan")}}, "batchSize"),
        ({"regions": [{"k": [[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]}]}, "nested"),
        (
            {"resultsPublisherConfig": {**TO_SQS, "batchSize": 0}},
            "batchSize.* is 0 .*1 or more",
        ),
        (
            {"resultsPublisherConfig": {"destination": "S3", "compressionCodec": "zip"}},
            "compressionCodec.*'zip'",
        ),
        ({"resultsPublisherConfig": {"destination": "WEBSOCKET"}}, r'Config.endpoint" is missing'),
        ({"statusReportDestinations": {}}, r'"statusReportDestinations" is {} \(expected a list\)'),
        ({"statusReportDestinations": [{"destination": "S3"}]}, r"Destinations\[0\].*DYNAMODB"),
    ],
)
def test_errors_name_the_wrong_value(members, complaint):
    with pytest.raises(InvalidRequestError, match=complaint) as refusal:
        parse_query_message(body(**members), "default")
    assert str(refusal.value).startswith("query message: ")


@pytest.mark.parametrize(
    "name",
    ["sqlQuery", "where", "limit", "maxRows", "Regions", "requestedValueField", "as_of", "from"],
)
def test_an_unknown_member_that_would_change_the_rows_is_refused(name):
    with pytest.raises(InvalidRequestError, match=f"query message: '{name}' is not supported"):
        parse_query_message(body(**{name: "SELECT 1"}), "")


@pytest.mark.parametrize("more", [{"sqlQuery": None}, {"sqlQuery": ""}, {"whatever": "limit"}])
def test_other_unknown_members_and_empty_ones_are_ignored(more):
    assert parse_query_message(body(**more), "") == parse_query_message(body(), "")


@pytest.mark.parametrize("seven", [7, 7.0, "7", "007"])
def test_a_query_may_be_as_of_a_transaction(seven):
    message = parse_query_message(body(asOf=seven), "default")
    assert message.version() == make_query(message, SCHEMA).version == 7


def test_a_query_may_be_as_of_a_time_or_an_age():
    message = parse_query_message(body(asOf="1970-01-01T00:00:07Z"), "default")
    assert message.version() == PointInTime(7000, "1970-01-01T00:00:07Z")
    message = parse_query_message(body(asOf="3s"), "default")
    assert message.version(lambda: 10_000) == PointInTime(7000, "3s")


@pytest.mark.parametrize("newest", [None, "", ...])
def test_a_query_reads_the_newest_version_by_default(newest):
    message = parse_query_message(body(asOf=newest), "default")
    assert message.version() is None
    assert "asOf" not in QUERY_CODEC.to_json(message)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "7"])
def test_body_that_is_not_an_object_is_refused(text):
    with pytest.raises(InvalidRequestError, match="query message"):
        parse_query_message(text, "default")
    assert read_query_id(text, "default") == "default"


def test_invalid_message_is_refused_with_its_query_id():
    assert read_query_id(body(regions=...), "default") == "q1"
    assert read_query_id(body(queryId="\ud800"), "default") == "default"


@pytest.mark.parametrize(
    ("region", "complaint"),
    [
        ({"n": {"mn": 5, "max": 7}}, r'"regions\[1\]": .*unknown member \'mn\''),
        ({"n": {"Min": 5}}, "unknown member 'Min'"),
        ({"n": {"min": 5.5}}, "field 'n'"),
        ({"n": {"min": "1e3"}}, "field 'n'"),
        ({"n": {"min": 2.0**63}}, "field 'n'"),
        ({"n": {"min": float("inf")}}, "field 'n'"),
        (
            {"n": {"min": 5, "minInclusive": "yes"}},
            '"minInclusive" is .yes. .expected true or false',
        ),
        ({"n": {"min": 5, "max": 1}, "name": {"min": "?"}}, "base64"),
        ({"n": {"min": "a", "max": None}}, "field 'n'"),
        ({"n": {"min": 2**31, "max": None}}, "does not fit"),
        ({"name": {"min": "?", "max": None}}, "base64"),
        ({"v": {}}, "not a row key field"),
    ],
)
def test_errors_name_a_region_that_does_not_fit_the_schema(region, complaint):
    message = parse_query_message(body(regions=[REGION, region]), "default")
    with pytest.raises(InvalidRequestError, match=complaint):
        make_query(message, SCHEMA)


def parse_region(raw):
    (region,) = make_query(parse_query_message(body(regions=[raw]), "default"), SCHEMA).regions
    return region


@pytest.mark.parametrize("five", [5, 5.0, "5", "5.0", "+5", "5.", "005"])
def test_whole_numbers_are_parsed_like_gson(five):
    assert parse_region({"n": {"min": five, "max": 7}}).ranges[1] == Range(5, 7)


def test_whole_number_as_string_keeps_every_digit():
    schema = Schema((Field("k", PrimitiveType.LONG),))
    raw = {"k": {"min": str(2**63 - 2), "max": f"{2**63 - 1}.0"}}
    (region,) = make_query(parse_query_message(body(regions=[raw]), "default"), schema).regions
    assert region.ranges == (Range(2**63 - 2, 2**63 - 1),)


@pytest.mark.parametrize(("no", "yes"), [(False, True), ("false", "true"), ("False", "TRUE")])
def test_flag_may_be_a_string(no, yes):
    raw = {
        "n": {"min": 5, "minInclusive": no, "max": 7, "maxInclusive": yes},
        "name": {"min": "a", "max": "b"},
        "stringsBase64Encoded": no,
    }
    assert parse_region(raw).ranges == (Range("a", "b"), Range(6, 8))
    assert parse_region({"name": {"min": "YQ==", "max": "Yg=="}, "stringsBase64Encoded": yes})


@pytest.mark.parametrize("encoding", ["YQ==", "YQ"])
def test_base64_padding_is_optional(encoding):
    assert parse_region({"name": {"min": encoding}}).ranges[0] == Range("a", None)


@pytest.mark.parametrize(
    "within",
    [
        {"min": 5, "max": 5},
        {"min": 6, "max": 5},
        {"min": 5, "minInclusive": False, "max": 6},
        {"min": 2**31 - 1, "minInclusive": False},
    ],
)
def test_region_with_an_empty_range_has_no_rows(within):
    message = parse_query_message(body(regions=[{"n": within}, REGION]), "default")
    assert len(make_query(message, SCHEMA).regions) == 1
    message = parse_query_message(body(regions=[{"n": within}]), "default")
    assert make_query(message, SCHEMA).regions == ()


@pytest.mark.parametrize("query_id", ["a b#c?é%:😀", "a/b\\c", "/a/...", "a..b"])
def test_query_id_is_used_as_it_is(query_id):
    assert parse_query_message(body(queryId=query_id), "default").query_id == query_id


@pytest.mark.parametrize("query_id", ["..", "a/..", "../x", "a/./b", "a//b", "a/", "a\nb", "\x7f"])
def test_query_id_that_names_no_folder_is_refused(query_id):
    with pytest.raises(InvalidRequestError, match=r'"queryId" is .* \(expected no control'):
        parse_query_message(body(queryId=query_id), "default")
    assert read_query_id(body(queryId=query_id), "default") == "default"


def parse_results(config):
    return parse_query_message(body(resultsPublisherConfig=config), "default").results


def test_results_go_to_s3_by_default():
    for config in ({}, None, {"destination": None}, {"compressionCodec": "snappy"}):
        assert parse_results(config).kind is DestinationKind.S3
    assert parse_results({"compressionCodec": "snappy"}).codec is CompressionCodec.SNAPPY


def test_results_without_a_queue_url_go_to_the_default_queue():
    assert parse_results({"destination": "SQS"}) == ResultsDestination(DestinationKind.SQS)


@pytest.mark.parametrize("name", ["lz4_raw", "LZ4_RAW", "lz4"])
def test_names_of_parquet_for_lz4_are_one_codec(name):
    assert parse_results({"compressionCodec": name}).codec is CompressionCodec.LZ4


@pytest.mark.parametrize("query_id", [7, 7.0])
def test_a_query_id_may_be_a_number(query_id):
    assert parse_query_message(body(queryId=query_id), "default").query_id == "7"
    assert read_query_id(body(queryId=query_id), "default") == "7"


def test_a_status_destination_without_members_is_the_tracker():
    (status,) = parse_query_message(body(statusReportDestinations=[{}]), "default").status
    assert status.kind is StatusKind.TRACKER


@pytest.mark.parametrize(
    ("raw", "text"), [(5, "5"), (-3, "-3"), (5.5, "5.5"), (5.0, "5.0"), (True, "true")]
)
def test_a_number_or_flag_stands_for_a_key_of_text(raw, text):
    region = {"name": {"min": raw}, "stringsBase64Encoded": False}
    assert parse_region(region).ranges[0] == Range(text, None)


def test_a_message_may_lack_quotes():
    text = """{type: Query, queryId: q-1, 'tableName': 't', asOf: 7, requestedValueFields: [v, 'w'],
        regions: [{n: {min: 5, max: null, minInclusive: TRUE}}]}"""
    message = parse_query_message(text, "default")
    assert message == QueryMessage(
        "q-1",
        ({"n": {"min": 5, "max": None, "minInclusive": True}},),
        ("v", "w"),
        table_name="t",
        as_of=7,
    )
    assert query_fingerprint(text) == query_fingerprint(
        rewrite_query_body(text, "m", "somebody").replace("somebody", "else")
    )


@pytest.mark.parametrize("nine", [9, 9.0, "9", "9.0"])
@pytest.mark.parametrize("name", ["batchSize", "maxBatchSize"])
def test_batch_size_is_parsed_like_gson(name, nine):
    assert parse_results({**TO_SQS, name: nine}).batch_size == 9


@pytest.mark.parametrize(
    "named",
    [
        {"endpoint": "https://e", "connectionId": "c"},
        {"webSocketManagementApiEndpoint": "https://e", "webSocketConnectionId": "c"},
    ],
)
def test_connection_members_have_names_of_both_implementations(named):
    config = {"destination": "WEBSOCKET", **named, "maxBatchSize": "7"}
    message = parse_query_message(
        body(resultsPublisherConfig=config, statusReportDestinations=[config]), "default"
    )
    connection = Connection("https://e", "c")
    expected = ResultsDestination(DestinationKind.WEBSOCKET, batch_size=7, connection=connection)
    assert message.results == expected
    assert [report.connection for report in message.status] == [connection]


def test_errors_name_an_unknown_value_field():
    message = parse_query_message(body(requestedValueFields=["x"]), "default")
    with pytest.raises(InvalidRequestError, match=r"requestedValueFields.*no value field 'x'"):
        make_query(message, SCHEMA)


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
    st.none() | st.lists(NAMES, max_size=2).map(tuple),
    st.none() | st.builds(IteratorCall, st.sampled_from(["A", "B"]), NAMES),
    DESTINATIONS,
    table_name=NAMES,
    table_id=st.none() | NAMES,
    as_of=st.none() | st.integers(1, 2**60) | st.sampled_from(["2h", "2026-01-31T12:00:00Z"]),
    filters=st.lists(
        st.one_of(
            st.builds(AgeOff, NAMES, st.integers(0, 2**60)),
            st.builds(JsonContains, NAMES, st.sampled_from(['{"a": "),("}', "[1]", '"\\u00e9é"'])),
        ),
        max_size=2,
    ).map(tuple),
    aggregations=st.lists(
        st.builds(Aggregation, st.sampled_from(AggregationOp), NAMES), max_size=2
    ).map(tuple),
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
def test_query_message_round_trip(message):
    assert parse_query_message(body(**QUERY_CODEC.to_json(message)), "") == message


@given(LEAVES)
def test_leaf_message_round_trip(message):
    assert parse_leaf_query_message(leaf_query_body(message)) == message


@given(st.lists(LEAVES, min_size=2, max_size=2))
def test_messages_of_one_query_differ_in_their_leaves(messages):
    first, other = messages
    same_query = replace(
        other,
        query=replace(first.query, regions=other.query.regions),
        version=first.version,
        now_ms=first.now_ms,
        partition_region={},
        restriction=first.restriction,
    )
    bodies = LeafQueryBodies()
    for message in (first, same_query):
        assert parse_leaf_query_message(bodies.write(message)) == message


def test_subquery_reads_the_intersection_of_regions_and_leaf():
    leaf = {"name": {"min": "Yg==", "max": "Yw=="}}
    far = {"name": {"min": "eA==", "max": None}}
    query = QueryMessage("q", (REGION, far), table_id="i")
    result = make_leaf_query(LeafQueryMessage(query, "s", "l", leaf, version=4, now_ms=9), SCHEMA)
    assert [r.ranges[0] for r in result.regions] == [Range("b", "c")]
    assert (result.version, result.now_ms) == (4, 9)


def test_subquery_as_of_an_old_version_takes_its_time_from_the_version():
    query = QueryMessage("q", (REGION,), table_id="i", as_of="2h")
    leaf = LeafQueryMessage(query, "s", "l", {}, version=4, now_ms=9)
    result = make_leaf_query(leaf, SCHEMA)
    assert (result.version, result.now_ms) == (4, None)
    assert make_leaf_query(replace(leaf, version=None), SCHEMA).version.text == "2h"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"type": "Query"}, '"type"'),
        ({"subQueryId": None}, '"subQueryId" is None'),
        ({"partitionRegion": []}, '"partitionRegion" is .*expected an object'),
        ({"version": "1"}, '"version" is .*expected an integer'),
        ({"version": 2**63}, '"version" is .*expected an integer'),
        ({"files": 7}, '"files" is 7 .*expected a list'),
        ({"files": [7]}, r'"files\[0\]" is 7 '),
        ({"partitionRegion": {"n": {"min": [[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]}}}, "nested"),
        ({"restriction": {"columns": []}}, "\"restriction\": unknown member 'columns'"),
    ],
)
def test_errors_name_the_wrong_member_of_a_subquery(change, complaint):
    leaf = LeafQueryMessage(QueryMessage("q", (REGION,), table_id="i"), "s", "l", REGION)
    raw = {**json.loads(leaf_query_body(leaf)), **change}
    with pytest.raises(InvalidRequestError, match=complaint):
        parse_leaf_query_message(json.dumps(raw))


def test_redriven_message_is_the_same_query_of_the_same_caller():
    raw = {"type": "Query", "tableName": "t", "regions": []}
    body = rewrite_query_body(json.dumps(raw), "m1", "AROA1:x")
    message = parse_query_message(body, "m2")
    assert (message.query_id, message.requesters) == ("m1", ("AROA1:x",))
    again = rewrite_query_body(body, "m2", "AROA2")
    assert parse_query_message(again, "m3").requesters == ("AROA2", "AROA1:x")
    assert query_fingerprint(again) == query_fingerprint(json.dumps(raw))
    assert query_fingerprint(again) != query_fingerprint(json.dumps({**raw, "regions": [{}]}))
    for nonsense in ("{", "[]", '{"askedBy": 7}'):
        assert rewrite_query_body(nonsense, "m1", "AROA1") == nonsense


def test_leaf_message_contains_only_characters_that_sqs_accepts():
    region = {"name": {"min": "a\ufffe\uffff\x01é", "max": None}}
    query = QueryMessage("q", (region,), table_id="t")
    message = LeafQueryMessage(query, "s", "root", region)
    body = leaf_query_body(message)
    assert not any(character in body for character in "\ufffe\uffff\x01")
    assert "é" in body
    assert parse_leaf_query_message(body) == message
