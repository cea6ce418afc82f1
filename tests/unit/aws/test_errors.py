import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoRegionError,
    ReadTimeoutError,
)

from sleeper.aws.clients import make_client
from sleeper.aws.errors import MissingResourceError, RefusedError, ThrottledError, translate_errors
from sleeper.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    SleeperError,
    UnavailableError,
)


def client_error(code: str, *reasons: str) -> ClientError:
    answer = {"Error": {"Code": code, "Message": "says the service"}}
    if reasons:
        answer["CancellationReasons"] = [{"Code": reason} for reason in reasons]
    return ClientError(answer, "Operation")


def no_index(message: str) -> ClientError:
    return ClientError({"Error": {"Code": "ValidationException", "Message": message}}, "Query")


def translate(error: Exception) -> SleeperError:
    with pytest.raises(SleeperError) as failure, translate_errors("the thing"):
        raise error
    assert str(failure.value).startswith("the thing: ")
    return failure.value


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (client_error("ConditionalCheckFailedException"), RefusedError),
        (client_error("TransactionConflictException"), ConflictError),
        (client_error("ProvisionedThroughputExceededException"), UnavailableError),
        (client_error("ThrottlingException"), UnavailableError),
        (client_error("InternalServerError"), UnavailableError),
        (client_error("TransactionInProgressException"), UnavailableError),
        (client_error("AccessDeniedException"), UnavailableError),
        (client_error("ResourceNotFoundException"), MissingResourceError),
        (client_error("AWS.SimpleQueueService.NonExistentQueue"), MissingResourceError),
        (client_error("QueueDoesNotExist"), MissingResourceError),
        (no_index("The table does not have the specified index: recent"), MissingResourceError),
        (no_index("Cannot read from backfilling global secondary index: a"), MissingResourceError),
        (client_error("GoneException"), NotFoundError),
        (client_error("ValidationException"), InvalidRequestError),
        (EndpointConnectionError(endpoint_url="http://x"), UnavailableError),
        (ConnectTimeoutError(endpoint_url="http://x"), UnavailableError),
        (ReadTimeoutError(endpoint_url="http://x"), UnavailableError),
        (NoRegionError(), InvalidRequestError),
    ],
)
def test_aws_errors_are_translate_errors(error: Exception, kind: type[SleeperError]) -> None:
    assert type(translate(error)) is kind


@pytest.mark.parametrize(
    ("reasons", "kind"),
    [
        (("None", "ConditionalCheckFailed"), RefusedError),
        (("TransactionConflict", "ConditionalCheckFailed"), RefusedError),
        (("TransactionConflict", "None"), ConflictError),
        (("ThrottlingError", "None"), ThrottledError),
        (("ProvisionedThroughputExceeded", "None"), ThrottledError),
        (("ValidationError", "None"), InvalidRequestError),
    ],
)
def test_a_cancelled_transaction_is_translated_by_its_reasons(
    reasons: tuple[str, ...], kind: type[SleeperError]
) -> None:
    assert type(translate(client_error("TransactionCanceledException", *reasons))) is kind


def test_a_refusal_names_the_items_whose_condition_failed() -> None:
    reasons = ("None", "ConditionalCheckFailed", "None", "ConditionalCheckFailed")
    error = translate(client_error("TransactionCanceledException", *reasons))
    assert isinstance(error, RefusedError)
    assert error.items == (1, 3)


class _Answers(BaseHTTPRequestHandler):
    """Answers every request with the content."""

    content = b""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def dynamo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        config = Config(retries={"total_max_attempts": 1})
        url = f"http://127.0.0.1:{server.server_port}"
        yield make_client("dynamodb", config, endpoint_url=url, region_name="eu-west-2")
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("content", [b'{"Table": {"TableName": "t"', b""])
def test_a_truncated_answer_is_unavailable(
    dynamo: Any, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Answers, "content", content)
    with (
        pytest.raises(
            UnavailableError, match="table t: the response of DescribeTable is truncated"
        ),
        translate_errors("table t"),
    ):
        dynamo.describe_table(TableName="t")["Table"]
    monkeypatch.setattr(_Answers, "content", b"{}")
    assert "Attributes" not in dynamo.put_item(TableName="t", Item={"k": {"S": "k"}})
