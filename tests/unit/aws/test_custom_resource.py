"""Tests of responses to CloudFormation, with a local server."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from sleeper.aws.deployment import CustomResourceRequest, RequestType, handle_request
from sleeper.errors import InvalidRequestError


@pytest.fixture
def answers() -> Iterator[list[dict[str, Any]]]:
    """The responses that the server received. Each event has its URL."""
    responses: list[dict[str, Any]] = []

    class Taker(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            assert not self.headers["Content-Type"]
            responses.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Taker) as server:
        _event["ResponseURL"] = f"http://127.0.0.1:{server.server_port}/answer"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield responses
        server.shutdown()
        thread.join()


_event: dict[str, Any] = {
    "RequestType": "Create",
    "StackId": "stack",
    "RequestId": "request",
    "LogicalResourceId": "Properties",
    "ResourceProperties": {"Set": {}},
}


def test_finished_work_is_reported_as_success(answers: list[dict[str, Any]]) -> None:
    requests: list[CustomResourceRequest] = []
    handle_request(_event, requests.append)
    assert requests == [CustomResourceRequest(RequestType.CREATE, "stack", {"Set": {}}, None)]
    (answer,) = answers
    assert answer["Status"] == "SUCCESS"
    assert (answer["StackId"], answer["RequestId"]) == ("stack", "request")
    assert answer["PhysicalResourceId"] == "Properties"


def test_an_update_keeps_the_resource_s_own_id(answers: list[dict[str, Any]]) -> None:
    event = {**_event, "RequestType": "Update", "PhysicalResourceId": "known"}
    handle_request(event, lambda _: None)
    assert answers[0]["PhysicalResourceId"] == "known"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (InvalidRequestError("property sleeper.id cannot be '?'"), "property sleeper.id cannot"),
        (KeyError("Set"), "KeyError: 'Set'"),
        (InvalidRequestError("x" * 9000), "xxx"),
        (InvalidRequestError("é" * 1400), "ééé"),
        (InvalidRequestError('"\n' * 1400), '"\n'),
        (InvalidRequestError(), "InvalidRequestError"),
    ],
)
def test_a_failure_is_reported_with_its_reason(
    answers: list[dict[str, Any]], error: Exception, reason: str
) -> None:
    def fail(_: CustomResourceRequest) -> None:
        raise error

    handle_request(_event, fail)
    (answer,) = answers
    assert answer["Status"] == "FAILED"
    assert answer["Reason"].startswith(reason)
    assert len(json.dumps(answer)) <= 4096
