"""Tests of retry times: jobs outlast an outage of a minute, callers wait for seconds."""

import dataclasses
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from sleeper import retries as retrying
from sleeper.aws import clients
from sleeper.aws.dynamo import DynamoItems
from sleeper.errors import UnavailableError
from sleeper.retries import JOB_RETRY_SECONDS, RETRY_VARIABLE, retry_as_job, retry_seconds
from sleeper.storage import bucket as buckets
from sleeper.storage.bucket import Bucket, retry_config
from sleeper.storage.location import DataRoot
from tests.servers.dynoxide import DynamoServer
from tests.servers.failing_proxy import FailingProxy, failing_proxy

# The number of failed attempts in an outage of more than a minute.
OUTAGE = 18


@pytest.fixture
def retries(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Divides waits by a thousand."""
    short = {item: buckets._BACKOFF[item] / 1000 for item in ("init_backoff", "max_backoff")}
    monkeypatch.setattr(buckets, "_BACKOFF", {**buckets._BACKOFF, **short})
    return monkeypatch


def set_job_process(retries: pytest.MonkeyPatch) -> None:
    # Waits and retry time are both divided by a thousand, so the number of retries is the same.
    retries.setenv(RETRY_VARIABLE, str(JOB_RETRY_SECONDS / 1000))


def set_caller_process(retries: pytest.MonkeyPatch) -> None:
    retries.delenv(RETRY_VARIABLE, raising=False)
    retries.setenv(RETRY_VARIABLE, str(retry_seconds() / 1000))


@pytest.fixture
def s3(data_bucket: Bucket) -> Iterator[tuple[FailingProxy, Callable[[], DataRoot]]]:
    """A failing proxy of S3, and a function that opens a bucket through it."""
    assert data_bucket.endpoint is not None
    with failing_proxy(data_bucket.endpoint) as proxy:
        behind = dataclasses.replace(data_bucket, endpoint=proxy.endpoint)
        yield proxy, lambda: DataRoot(behind)


def test_a_job_outlasts_an_outage_of_s3(retries: pytest.MonkeyPatch, s3: Any) -> None:
    set_job_process(retries)
    proxy, open_root = s3
    root = open_root()
    proxy.failures = OUTAGE
    with root.sink("a") as sink:
        sink.write(b"rows")
    proxy.failures = OUTAGE
    assert root.read("a") == b"rows"
    proxy.failures = OUTAGE
    assert [result.path for result in root.list_objects("")] == ["a"]


def test_a_caller_waits_seconds_for_s3(retries: pytest.MonkeyPatch, s3: Any) -> None:
    set_caller_process(retries)
    proxy, open_root = s3
    proxy.failures = OUTAGE
    with pytest.raises(UnavailableError):
        open_root().read("a")
    assert 0 < proxy.failures < OUTAGE - 5


def test_retry_waits_for_s3_match_the_configured_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RETRY_VARIABLE, "90")
    config = retry_config()
    waits = buckets._mean_waits_seconds()
    total = sum(next(waits) for _ in range(config["max_retries"]))
    assert 90 <= total <= 95
    assert config["retry_timeout"].total_seconds() > 2 * total


def dynamo_behind(proxy: FailingProxy) -> Any:
    return clients.make_client(
        "dynamodb",
        endpoint_url=proxy.endpoint,
        region_name="eu-west-2",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


def test_a_job_outlasts_an_outage_of_dynamodb_in_all_its_threads(
    dynamo_server: DynamoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    # All threads retry at once, so each of them gets the same number of failures.
    round_ends = threading.Barrier(4, timeout=15)

    def wait(seconds: float) -> None:
        waits.append(seconds)
        round_ends.wait()

    _patch_sleep(monkeypatch, wait)
    with failing_proxy(dynamo_server.url) as proxy:
        monkeypatch.setenv(RETRY_VARIABLE, str(JOB_RETRY_SECONDS))
        client = dynamo_behind(proxy)
        # More failures than botocore's default quota retries.
        proxy.failures = 60
        with ThreadPoolExecutor(4) as threads:
            answers = list(threads.map(lambda _: client.list_tables(), range(4)))
        assert all("TableNames" in answer for answer in answers)
        assert (proxy.failures, len(waits)) == (0, 60)


def _patch_sleep(monkeypatch: pytest.MonkeyPatch, sleep: Callable[[float], None]) -> None:
    """Replaces the waits of boto3 only: other threads of this process sleep too."""
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=sleep))


def test_a_caller_waits_seconds_for_dynamodb(
    dynamo_server: DynamoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    _patch_sleep(monkeypatch, waits.append)
    monkeypatch.delenv(RETRY_VARIABLE, raising=False)
    with failing_proxy(dynamo_server.url) as proxy:
        client = dynamo_behind(proxy)
        proxy.failures = 60
        with pytest.raises(client.exceptions.ClientError):
            client.list_tables()
    assert len(waits) == 10
    assert sum(waits) < 26


def test_a_job_outlasts_throttling(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(retrying, "sleep", waits.append)

    class ThrottledClient:
        calls = 0

        def batch_write_item(self, RequestItems: Any) -> Any:
            self.calls += 1
            return {"UnprocessedItems": RequestItems if self.calls < 20 else {}}

    monkeypatch.setenv(RETRY_VARIABLE, str(JOB_RETRY_SECONDS))
    DynamoItems(ThrottledClient(), "table", "items").delete([{"k": "1"}])
    assert len(waits) == 19
    monkeypatch.delenv(RETRY_VARIABLE)
    with pytest.raises(UnavailableError, match="throttled"):
        DynamoItems(ThrottledClient(), "table", "items").delete([{"k": "1"}])


def test_child_processes_inherit_the_retry_time_of_jobs() -> None:
    with patch.dict("os.environ"):
        os.environ.pop(RETRY_VARIABLE)
        retry_as_job()
        assert retry_seconds() == JOB_RETRY_SECONDS
    with patch.dict("os.environ", {RETRY_VARIABLE: "5"}):
        retry_as_job()
        assert retry_seconds() == 5
