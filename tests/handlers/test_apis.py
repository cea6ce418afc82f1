"""Functions behind API Gateway, with its events."""

import base64
import copy
import json
from typing import Any

import pyarrow as pa
import pytest

from lambdas.serve_http import handler as serve_http_module
from sleeper.admin.properties import change_table_properties
from sleeper.errors import NotFoundError
from sleeper.iceberg.service import publish_table
from sleeper.instance import Instance
from sleeper.jobs.query_tracker import Connection
from sleeper.jobs.queue import QueueName
from sleeper.query.messages.destination import DestinationKind
from sleeper.query.messages.query import parse_query_message
from sleeper.query_service.service import submit_live_query
from tests.handlers.conftest import EVENTS, Lambda, add_rows, make_table
from tests.handlers.functions import add_table, handle_websocket, plan_query, serve_http
from tests.ports import with_ports

HTTP = json.loads((EVENTS / "http-api.json").read_text())
WEBSOCKET = json.loads((EVENTS / "websocket.json").read_text())
ARROW = "application/vnd.apache.arrow.stream"
CALLERS = "sleeper.table.query.callers"


def request(method: str, path: str, body: object = None, **headers: str) -> dict[str, Any]:
    event: dict[str, Any] = copy.deepcopy(HTTP)
    path, _, query = path.partition("?")
    event |= {"rawPath": path, "rawQueryString": query, "body": json.dumps(body)}
    event["headers"] |= headers
    event["requestContext"]["http"] |= {"method": method, "path": path}
    return event


@pytest.fixture
def table(instance: Instance) -> Instance:
    make_table(instance, "t")
    add_rows(instance, "t", 1, 2, 3)
    return instance


def test_rows_are_answered_in_one_piece(table: Instance, aws: Lambda) -> None:
    answer = aws.call(serve_http, copy.deepcopy(HTTP))
    assert (answer["statusCode"], answer["isBase64Encoded"]) == (200, False)
    assert answer["body"] == '{"k":1,"v":"v1"}\n'
    answer = aws.call(serve_http, request("POST", "/tables/t/query", {}, accept=ARROW))
    assert answer["isBase64Encoded"]
    stream = pa.ipc.open_stream(base64.b64decode(answer["body"]))
    assert stream.read_all().column("k").to_pylist() == [1, 2, 3]


def test_the_deployed_api_has_all_routes_except_the_page(table: Instance, aws: Lambda) -> None:
    listing = aws.call(serve_http, request("GET", "/tables"))
    assert [t["name"] for t in json.loads(listing["body"])["tables"]] == ["t"]
    status = aws.call(serve_http, request("GET", "/status?report=tables&table=t"))
    assert json.loads(status["body"])["reports"][0]["rows"][0]["rows"] == 3
    sql = aws.call(serve_http, request("POST", "/sql", {"statement": "SELECT sum(k) AS s FROM t"}))
    assert json.loads(sql["body"]) == {"s": 6}
    feed = aws.call(serve_http, request("GET", "/tables/t/changes?limit=1"))
    assert [json.loads(line)["row"]["k"] for line in feed["body"].splitlines()] == [1, 2, 3]
    assert aws.call(serve_http, request("GET", "/"))["statusCode"] == 404
    assert aws.call(serve_http, request("GET", "/tables/nope"))["statusCode"] == 404


def test_the_deployed_catalog_offers_what_was_published(table: Instance, aws: Lambda) -> None:
    path = "/iceberg/v1/namespaces/sleeper/tables"
    listing = json.loads(aws.call(serve_http, request("GET", path))["body"])
    assert listing == {"identifiers": [{"namespace": ["sleeper"], "name": "t"}]}
    answer = aws.call(serve_http, request("GET", f"{path}/t"))
    assert answer["statusCode"] == 404
    assert "was not published" in json.loads(answer["body"])["error"]["message"]
    published = publish_table(table.table("t"))
    add_rows(table, "t", 4)
    answer = aws.call(serve_http, request("GET", f"{path}/t"))
    assert json.loads(answer["body"])["metadata-location"] == published.metadata_url
    assert aws.call(serve_http, request("HEAD", f"{path}/t"))["statusCode"] == 204
    change_table_properties(table, "t", {CALLERS: '{"AROAEXAMPLE": {}}'})
    assert aws.call(serve_http, request("GET", f"{path}/t"))["statusCode"] == 404


@pytest.mark.parametrize(
    ("route", "body"), [("delete", {"all": True}), ("restore", {"to": 1}), ("clone", {"name": "c"})]
)
def test_the_deployed_api_refuses_changes_with_its_reason(
    table: Instance, aws: Lambda, route: str, body: dict[str, object]
) -> None:
    answer = aws.call(serve_http, request("POST", f"/tables/t/{route}", body))
    assert answer["statusCode"] == 403
    assert "read-only: change tables with the command line" in json.loads(answer["body"])["reason"]
    assert len(aws.call(serve_http, request("POST", "/tables/t/query", {}))["body"].split()) == 3


def test_a_response_too_large_for_lambda_is_refused_with_its_reason(
    table: Instance, aws: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_http_module, "_ANSWER_BYTES_MAX", 40)
    serve_http_module._application.cache_clear()
    try:
        assert aws.call(serve_http, copy.deepcopy(HTTP))["statusCode"] == 200
        answer = aws.call(serve_http, request("POST", "/tables/t/query", {}))
        assert answer["statusCode"] == 413
        assert "queue" in json.loads(answer["body"])["reason"]
    finally:
        serve_http_module._application.cache_clear()


def test_a_caller_is_identified_by_its_iam_identity(table: Instance, aws: Lambda) -> None:
    change_table_properties(table, "t", {CALLERS: '{"AROAEXAMPLE": {"valueFields": []}}'})
    answer = aws.call(serve_http, copy.deepcopy(HTTP))
    assert answer["body"] == '{"k":1}\n'
    change_table_properties(table, "t", {CALLERS: '{"AROAANOTHER": {}}'})
    answer = aws.call(serve_http, copy.deepcopy(HTTP))
    assert answer["statusCode"] == 400
    assert "AROAEXAMPLE:someone" in json.loads(answer["body"])["reason"]


def added(aws: Lambda, body: object) -> tuple[int, dict[str, str]]:
    answer = aws.call(add_table, request("POST", "/sleeper/tables", body))
    assert answer["headers"] == {"content-type": "application/json"}
    return answer["statusCode"], json.loads(answer["body"])


def test_a_client_of_gchq_creates_a_table(instance: Instance, aws: Lambda) -> None:
    body = {
        "properties": {
            "sleeper.table.name": "made",
            "sleeper.table.partition.splitting.threshold": "50000",
        },
        "schema": {"rowKeyFields": [{"name": "k", "type": "StringType"}]},
        "splitPoints": ["m"],
    }
    status, answer = added(aws, body)
    made = instance.table("made")
    assert (status, answer) == (201, {"tableId": made.ref.id, "tableName": "made"})
    with made.state.reading() as state:
        assert len(list(state.partitions.leaves())) == 2
    status, answer = added(aws, body)
    assert (status, answer["error"]) == (409, "table_already_exists")


def test_a_body_in_base64_creates_a_table(instance: Instance, aws: Lambda) -> None:
    body = {
        "properties": {"sleeper.table.name": "coded"},
        "schema": {"rowKeyFields": [{"name": "k", "type": "LongType"}]},
    }
    event = request("POST", "/sleeper/tables", body)
    event |= {"body": base64.b64encode(event["body"].encode()).decode(), "isBase64Encoded": True}
    assert aws.call(add_table, event)["statusCode"] == 201
    assert instance.table("coded").ref.name == "coded"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ([], "must be a JSON object"),
        ({"schema": {}}, "no sleeper.table.name"),
        ({"properties": {"sleeper.table.name": "t"}}, '"schema" must be an object'),
        ({"properties": {}, "name": "t"}, "unknown member 'name'"),
    ],
)
def test_a_wrong_request_of_a_table_is_refused(
    instance: Instance, aws: Lambda, body: object, reason: str
) -> None:
    status, answer = added(aws, body)
    assert (status, answer["error"]) == (400, "invalid_request")
    assert reason in answer["message"]
    assert instance.tables.index.list() == ()


def test_a_body_that_is_not_json_is_refused(instance: Instance, aws: Lambda) -> None:
    event = request("POST", "/sleeper/tables") | {"body": None}
    answer = aws.call(add_table, event)
    assert answer["statusCode"] == 400
    assert "the body is not JSON" in answer["body"]
    assert instance.tables.index.list() == ()


def get_json(aws: Lambda, path: str) -> tuple[int, dict[str, Any]]:
    answer = aws.call(serve_http, request("GET", path))
    return answer["statusCode"], json.loads(answer["body"])


def test_table_descriptions_contain_the_columns_a_caller_may_read(
    table: Instance, aws: Lambda
) -> None:
    status, whole = get_json(aws, "/tables/t")
    assert (status, whole["rows"], len(whole["schema"]["valueFields"])) == (200, 3, 1)
    change_table_properties(table, "t", {CALLERS: '{"AROAEXAMPLE": {"valueFields": []}}'})
    status, some = get_json(aws, "/tables/t")
    assert status == 200
    assert set(some) == {"name", "id", "online", "version", "schema"}
    assert "valueFields" not in some["schema"] or some["schema"]["valueFields"] == []
    change_table_properties(table, "t", {CALLERS: '{"AROAANOTHER": {}}'})
    status, empty = get_json(aws, "/tables/t")
    assert (status, "may not query" in empty["reason"]) == (400, True)


@pytest.mark.parametrize("callers", ['{"AROAEXAMPLE": {"valueFields": []}}', '{"AROAANOTHER": {}}'])
@pytest.mark.parametrize("report", ["tables", "files", "partitions", "ingest-jobs", "all"])
def test_reports_require_access_to_all_tables(
    table: Instance, aws: Lambda, callers: str, report: str
) -> None:
    make_table(table, "open")
    change_table_properties(table, "t", {CALLERS: callers})
    for path in (f"/status?report={report}", f"/status?report={report}&table=t"):
        status, answer = get_json(aws, path)
        assert status == 400
        assert "'t'" in answer["reason"]
    status, answer = get_json(aws, f"/status?report={report}&table=open")
    if report == "all":
        # It has the tasks, queues and dead letters of the whole instance, other tables' too.
        assert status == 400
        assert "'t'" in answer["reason"]
    else:
        assert status == 200


def test_queries_of_a_restricted_table_are_hidden_from_other_callers(
    table: Instance, aws: Lambda
) -> None:
    body = json.dumps({**QUERY, "queryId": "of-others", "resultsPublisherConfig": {}})
    table.jobs.queue(QueueName.QUERY).send(body)
    aws.take(QueueName.QUERY, plan_query)
    assert get_json(aws, "/queries/of-others")[0] == 200
    change_table_properties(table, "t", {CALLERS: '{"AROAANOTHER": {}}'})
    status, answer = get_json(aws, "/queries/of-others")
    assert (status, answer["reason"]) == (404, "query 'of-others' does not exist")


def live(body: str, kind: str = "MESSAGE") -> dict[str, Any]:
    event: dict[str, Any] = copy.deepcopy(WEBSOCKET)
    event["requestContext"]["eventType"] = kind
    event["body"] = body if kind == "MESSAGE" else None
    return event


QUERY = {"type": "Query", "queryId": "q", "tableName": "t", "regions": []}
CONNECTION = Connection(
    "https://f6g7h8i9j0.execute-api.eu-west-2.amazonaws.com/live", "Y0yJsfqMrPECFIw="
)


def test_a_query_over_the_websocket_goes_to_the_queue_with_its_connection(
    table: Instance, aws: Lambda
) -> None:
    elsewhere = {
        "destination": "WEBSOCKET",
        "endpoint": "https://evil.example",
        "connectionId": "x",
    }
    body = json.dumps(
        {**QUERY, "resultsPublisherConfig": elsewhere, "statusReportDestinations": [elsewhere]}
    )
    assert aws.call(handle_websocket, live(body)) == {"statusCode": 200}
    (request_,) = table.jobs.queue(QueueName.QUERY).receive(10)
    message = parse_query_message(request_.body, "none")
    assert (message.client_query_id, message.frame_id) == ("q", "q")
    assert message.query_id != "q"
    assert message.results.kind is DestinationKind.WEBSOCKET
    assert message.results.connection == CONNECTION
    assert [report.connection for report in message.status] == [CONNECTION]


def test_connecting_and_disconnecting_sends_no_frame(table: Instance, aws: Lambda) -> None:
    for kind in ("CONNECT", "DISCONNECT"):
        assert aws.call(handle_websocket, live("", kind)) == {"statusCode": 200}
    assert not table.jobs.queue(QueueName.QUERY).receive(10)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("nonsense", "not JSON"),
        (json.dumps({**QUERY, "tableName": "nope"}), "nope"),
        (json.dumps({**QUERY, "regions": 7}), "regions"),
        (json.dumps({**QUERY, "resultsPublisherConfig": {"destination": "Mars"}}), "Mars"),
    ],
)
def test_a_refusal_is_reported_once_and_sends_no_message(
    table: Instance, body: str, reason: str
) -> None:
    frames: list[tuple[Connection, dict[str, Any]]] = []
    listener = with_ports(
        table,
        queries={
            "send_frame": lambda connection, frame: frames.append((connection, json.loads(frame)))
        },
    )
    submit_live_query(listener, CONNECTION.endpoint, CONNECTION.id, body)
    ((connection, frame),) = frames
    assert connection == CONNECTION
    assert (frame["message"], reason in frame["error"]) == ("error", True)
    assert not table.jobs.queue(QueueName.QUERY).receive(10)


def test_disconnected_clients_receive_no_frames(table: Instance) -> None:
    def raise_closed(_connection: Connection, _frame: str) -> None:
        raise NotFoundError("closed")

    submit_live_query(
        with_ports(table, queries={"send_frame": raise_closed}),
        CONNECTION.endpoint,
        CONNECTION.id,
        "nonsense",
    )


def test_a_restricted_table_refuses_live_queries(table: Instance) -> None:
    change_table_properties(table, "t", {CALLERS: '{"*": {"valueFields": []}}'})
    frames: list[str] = []
    listener = with_ports(
        table, queries={"send_frame": lambda _connection, frame: frames.append(frame)}
    )
    submit_live_query(listener, CONNECTION.endpoint, CONNECTION.id, json.dumps(QUERY))
    assert "restricts its callers" in frames[0]
    assert not table.jobs.queue(QueueName.QUERY).receive(10)
