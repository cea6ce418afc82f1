"""The HTTP and WebSocket APIs of an instance that enables them."""

import json

import pytest

from tests.infra.synthesis import Synthesis, as_list
from tests.infra.test_export_queues import _allowed

ROUTE = "AWS::ApiGatewayV2::Route"
STAGE = "AWS::ApiGatewayV2::Stage"


def test_routes_are_authorized_by_iam(apis: Synthesis) -> None:
    routes = {r["RouteKey"]: r["AuthorizationType"] for r in apis.properties(ROUTE)}
    assert routes == {
        "GET /{proxy+}": "AWS_IAM",
        "HEAD /{proxy+}": "AWS_IAM",
        "POST /{proxy+}": "AWS_IAM",
        "POST /sleeper/tables": "AWS_IAM",
        "$connect": "AWS_IAM",
        "$disconnect": "NONE",
        "$default": "NONE",
    }


def test_stages_are_bounded_and_the_http_api_has_a_log(apis: Synthesis) -> None:
    stages = {s["StageName"]: s for s in apis.properties(STAGE)}
    assert set(stages) == {"$default", "live"}
    for stage in stages.values():
        assert stage["DefaultRouteSettings"] == {
            "ThrottlingRateLimit": 50,
            "ThrottlingBurstLimit": 100,
        }
    log_lines = json.loads(stages["$default"]["AccessLogSettings"]["Format"])
    assert {"caller", "route", "status"} <= set(log_lines)


def test_functions_have_the_required_memory(apis: Synthesis) -> None:
    functions = {f["FunctionName"]: f for f in apis.properties("AWS::Lambda::Function")}
    http = functions["sleeper-example-serve-http"]
    assert (http["PackageType"], http["Timeout"], http["MemorySize"]) == ("Image", 30, 3008)
    live = functions["sleeper-example-handle-websocket"]
    assert live["Handler"] == "lambdas.handle_websocket.handler.handler"


def test_frames_are_sent_to_connections_of_the_instance_alone(apis: Synthesis) -> None:
    (policy,) = (
        policy
        for policy in apis.properties("AWS::IAM::Policy")
        if "execute-api:ManageConnections" in json.dumps(policy)
    )
    assert len(policy["Roles"]) == 3  # the WebSocket's function, and those that plan and run
    (statement,) = policy["PolicyDocument"]["Statement"]
    parts = statement["Resource"]["Fn::Join"][1]
    (api,) = (
        name.removeprefix("WebSocketQuery/")
        for name in apis.of_type("AWS::ApiGatewayV2::Api")
        if name.startswith("WebSocketQuery/")
    )
    assert parts[-2:] == [{"Ref": api}, "/live/POST/@connections/*"]
    report = json.loads((apis.folder / "validation-report.json").read_text())
    assert report["pluginReports"] == []


def test_client_roles_connect_to_the_websocket_of_their_instance_alone(apis: Synthesis) -> None:
    """Each instance has a stage of this name, so a wildcard would allow those of others."""
    for role in ("ClientRoles/Query", "ClientRoles/Admin"):
        (connect,) = _allowed(apis, role)["execute-api:Invoke"]
        assert "/live/$connect" in connect
        assert "*" not in connect


def test_only_the_function_that_creates_tables_changes_the_table_index(apis: Synthesis) -> None:
    functions = {f["FunctionName"]: f for f in apis.properties("AWS::Lambda::Function")}
    add = functions["sleeper-example-add-table"]
    assert (add["Handler"], add["Timeout"]) == ("lambdas.add_table.handler.handler", 30)
    writers = {
        place
        for place, statement in apis.statements()
        if place.startswith("HttpApi")
        and "dynamodb:PutItem" in as_list(statement["Action"])
        and "table-index-by-name" in json.dumps(statement["Resource"])
    }
    assert len(writers) == 1
    assert writers.pop().startswith("HttpApi/AddTable")


@pytest.mark.parametrize("role", ["HttpApi/ServeRole", "ClientRoles/Admin"])
def test_reports_may_read_queries_export_queues_and_dead_letters(
    apis: Synthesis, role: str
) -> None:
    """`GET /status`, and `GET /tables/NAME`, which shows the export queues of the table."""
    allowed = _allowed(apis, role)
    for action in ("dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"):
        assert any('table/sleeper-example-query-tracker"' in each for each in allowed[action])
    reads = allowed["dynamodb:Query"]
    assert any('query-tracker/index/recent"' in each for each in reads)
    assert any('table/sleeper-example-export-queues"' in each for each in reads)
    queues = {q["QueueName"] for q in apis.properties("AWS::SQS::Queue")}
    dead = {name for name in queues if "dead-letters" in name}
    assert len(dead) == (len(queues) - len({"query-results"})) / 2
    for action in ("sqs:ReceiveMessage", "sqs:ChangeMessageVisibility"):
        assert dead <= {_name(each) for each in allowed[action]}


def test_the_http_api_deletes_nothing(apis: Synthesis) -> None:
    allowed = _allowed(apis, "HttpApi/ServeRole")
    for action in ("sqs:DeleteMessage", "s3:DeleteObject"):
        assert action not in allowed
    # `sleeper dead-letters redrive` deletes what it has sent.
    deleted = {_name(each) for each in _allowed(apis, "ClientRoles/Admin")["sqs:DeleteMessage"]}
    assert all("dead-letters" in name or name.endswith("query-results") for name in deleted)


def _name(arn: str) -> str:
    return arn.rpartition(":")[2].split('"')[0]


def test_the_urls_are_properties(apis: Synthesis) -> None:
    (resource,) = apis.properties("Custom::SleeperProperties")
    places = resource["Deployed"]
    websocket = json.dumps(places["sleeper.query.websocket.api.url"])
    assert "wss://" in websocket or "ApiEndpoint" in websocket or "Outputs" in websocket
    assert places["sleeper.query.http.api.url"]
    assert places["sleeper.rest.api.url"] == places["sleeper.query.http.api.url"]
    assert "/sleeper/tables" in json.dumps(places["sleeper.rest.api.add.table.url"])


def test_functions_of_queries_are_kept_warm_if_chosen(apis: Synthesis, example: Synthesis) -> None:
    rules = {p["Name"]: p for p in apis.properties("AWS::Events::Rule") if "warm" in p["Name"]}
    assert set(rules) == {
        "sleeper-example-keep-warm-plan-query",
        "sleeper-example-keep-warm-run-leaf-query",
    }
    for rule in rules.values():
        assert rule["ScheduleExpression"] == "rate(7 minutes)"
        assert json.loads(rule["Targets"][0]["Input"]) == {"Records": []}
    (resource,) = apis.properties("Custom::SleeperProperties")
    assert set(rules) <= set(resource["Deployed"]["sleeper.schedule.rules"].split(","))
    assert not any("warm" in p["Name"] for p in example.properties("AWS::Events::Rule"))


def test_an_instance_has_no_api_by_default(example: Synthesis) -> None:
    assert example.properties(ROUTE) == []
