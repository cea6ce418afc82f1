"""Tests of the choice of the results queue."""

from types import SimpleNamespace
from typing import Any

import pytest

from sleeper.aws import instance
from sleeper.errors import InvalidRequestError
from sleeper.properties.deployed import QUERY_RESULTS_QUEUE_URL
from sleeper.properties.values import instance_properties

URL = "https://sqs.eu-west-2.amazonaws.com/123456789012/sleeper-mine-query-results"


@pytest.fixture(autouse=True)
def _no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "aws_client", lambda _service: None)


def make_files(**values: str) -> Any:
    return SimpleNamespace(instance=lambda: instance_properties(values))


def test_results_without_a_url_go_to_the_default_queue() -> None:
    files = make_files(**{QUERY_RESULTS_QUEUE_URL.name: URL})
    assert QUERY_RESULTS_QUEUE_URL.name == "sleeper.query.results.queue.url"
    assert instance._results_queue(files, None)._url == URL
    assert instance._results_queue(files, "https://mine")._url == "https://mine"


def test_an_instance_without_a_default_queue_refuses_results_without_a_url() -> None:
    with pytest.raises(InvalidRequestError, match=r"sleeper\.query\.results\.queue\.url"):
        instance._results_queue(make_files(), None)
