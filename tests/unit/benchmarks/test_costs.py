"""Requests have their prices, and sums of prices are those of the list."""

import json
from collections import Counter
from functools import partial
from http.client import HTTPConnection
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

from benchmarks import billed_requests
from benchmarks.billed_requests import (
    READ_UNITS,
    S3_READS,
    S3_WRITES,
    SQS_REQUESTS,
    WRITE_UNITS,
    Counts,
    count_dynamo,
    count_s3,
    count_sqs,
)
from benchmarks.costs import CLOUDWATCH_METRICS, SQS_STANDARD, idle_month
from benchmarks.counting_proxy import Exchange, counting_proxy
from benchmarks.idle import IdleParts, Runs, parts_of
from sleeper.billing.prices import Prices, TaskSize, read_prices

PRICES = Prices(
    "a list",
    "here",
    {
        "fargate_arm_cpu_hour": 0.03,
        "fargate_arm_gb_hour": 0.004,
        "public_address_hour": 0.005,
        "lambda_million_invocations": 0.2,
        "lambda_arm_gb_second": 0.00001,
        "interface_endpoint_hour": 0.01,
        "hours_month": 730,
        "alarm_month": 0.1,
        "logs_gb": 0.5,
        S3_READS: 0.4,
        S3_WRITES: 5.0,
        SQS_REQUESTS: 0.5,
        SQS_STANDARD: 0.4,
        READ_UNITS: 0.1,
        CLOUDWATCH_METRICS: 10.0,
    },
)


def test_requests_are_priced_per_million() -> None:
    assert PRICES.requests({S3_READS: 2_000_000, S3_WRITES: 500_000}) == pytest.approx(3.3)


def test_a_task_is_priced_by_its_size_for_the_hours_in_which_its_processors_are_busy() -> None:
    # 4 CPU hours on 2 CPUs are 2 hours of 2 CPUs, 8 GiB and an address.
    dollars = PRICES.task(TaskSize(2, 8), 4 * 3600)
    assert dollars == pytest.approx(2 * (2 * 0.03 + 8 * 0.004 + 0.005))


def test_a_run_of_a_function_is_priced_by_memory_and_time() -> None:
    assert PRICES.function(2048, 0.5) == pytest.approx(0.2e-6 + 0.00001)


def test_an_idle_month_has_schedules_tables_polls_metrics_alarms_and_endpoints() -> None:
    parts = IdleParts(
        Runs(1_000_000, 50_000), Runs(100_000, 10_000), 1_000_000, 4_000_000, 250_000, 20_000, 3, 8
    )
    assert idle_month(PRICES, parts, {S3_READS: 2}) == pytest.approx(
        {
            "schedules": 0.2 + 0.5 + 0.8,
            "each table": 0.02 + 0.1 + 0.1 + 0.02,
            "polls of queues": 0.4 + 2.0,
            "the watch": 0.1 + 0.2,
            "logs": 1_100_000 * 600 / 2**30 * 0.5,
            "alarms": 0.3,
            "interface endpoints": 8 * 7.3,
        }
    )


def test_the_list_has_every_price_that_is_counted() -> None:
    prices = read_prices()
    counted = {getattr(billed_requests, name) for name in dir(billed_requests) if name.isupper()}
    names = {name for name in counted if isinstance(name, str) and "million" in name}
    assert names | set(PRICES.dollars) <= set(prices.dollars)
    assert min(prices.dollars.values()) > 0


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/bucket/key", {S3_READS: 1}),
        ("HEAD", "/bucket/key", {S3_READS: 1}),
        ("PUT", "/bucket/key?partNumber=2&uploadId=a", {S3_WRITES: 1}),
        ("POST", "/bucket/key?uploads", {S3_WRITES: 1}),
        ("GET", "/bucket?list-type=2&prefix=a", {S3_WRITES: 1}),
        ("DELETE", "/bucket/key", {}),
        ("POST", "/bucket?delete", {}),
    ],
)
def test_requests_to_s3_are_reads_writes_or_free(
    method: str, path: str, expected: dict[str, int]
) -> None:
    counts: Counts = Counter()
    count_s3(counts, Exchange(method, path, "", b"", b""))
    assert counts == expected


def _units(operation: str, request: dict[str, Any], response: bytes = b"{}") -> dict[str, int]:
    counts: Counts = Counter()
    target, body = f"DynamoDB_20120810.{operation}", json.dumps(request).encode()
    count_dynamo(counts, Exchange("POST", "/", target, body, response))
    return dict(counts)


def test_consistent_reads_take_a_unit_for_each_4_kib() -> None:
    assert _units("GetItem", {}) == {READ_UNITS: 1}
    assert _units("Query", {}, b"x" * 4097) == {READ_UNITS: 2}
    batch: dict[str, Any] = {"RequestItems": {"t": {"Keys": [{}, {}, {}]}}}
    assert _units("BatchGetItem", batch) == {READ_UNITS: 3}


def test_writes_take_a_unit_for_each_kib_of_an_item() -> None:
    small, large = {"a": {"S": "x"}}, {"a": {"S": "x" * 1024}}
    assert _units("PutItem", {"Item": small}) == {WRITE_UNITS: 1}
    assert _units("PutItem", {"Item": large}) == {WRITE_UNITS: 2}
    assert _units("UpdateItem", {"Key": small}) == {WRITE_UNITS: 1}
    deletes = {"RequestItems": {"t": [{"DeleteRequest": {"Key": small}}] * 3}}
    assert _units("BatchWriteItem", deletes) == {WRITE_UNITS: 3}


def test_a_transaction_takes_two_units_for_each_item_and_an_index_one_more() -> None:
    writes = [{"Update": {"Key": {}}}, {"Put": {"Item": {"listing": {"S": "x"}}}}]
    assert _units("TransactWriteItems", {"TransactItems": writes}) == {WRITE_UNITS: 2 + 3}


def test_an_operation_without_a_price_is_an_error() -> None:
    with pytest.raises(ValueError, match="ExecuteStatement"):
        _units("ExecuteStatement", {})


def test_requests_to_other_services_are_none_to_sqs() -> None:
    counts: Counts = Counter()
    for target in ("AmazonSQS.SendMessage", "AmazonSNS.Publish", ""):
        count_sqs(counts, Exchange("POST", "/", target, b"", b""))
    assert counts == {SQS_REQUESTS: 1}


def test_the_proxy_forwards_a_request_and_observes_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    observed: list[Exchange] = []
    folder = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with HTTPServer(("127.0.0.1", 0), folder) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with counting_proxy(f"http://127.0.0.1:{server.server_port}", observed.append) as proxy:
            connection = HTTPConnection(urlsplit(proxy.endpoint).netloc)
            connection.request("GET", "/file?a", headers={"X-Amz-Target": "Service.Do"})
            assert connection.getresponse().read() == b"content"
            connection.close()
            assert observed == [Exchange("GET", "/file?a", "Service.Do", b"", b"content")]
            assert (proxy.taken(), proxy.taken()) == (1, 0)
        server.shutdown()


def test_the_parts_of_an_idle_instance_are_counted_in_its_templates() -> None:
    def resource(kind: str, **properties: Any) -> dict[str, Any]:
        return {"Type": kind, "Properties": properties}

    def rule(function: str, expression: str) -> dict[str, Any]:
        arn = {"Fn::GetAtt": [function, "Arn"]}
        return resource("AWS::Events::Rule", ScheduleExpression=expression, Targets=[{"Arn": arn}])

    def source(arn: Any, function: str = "Start01234567") -> dict[str, Any]:
        name = {"Ref": function}
        return resource("AWS::Lambda::EventSourceMapping", EventSourceArn=arn, FunctionName=name)

    watched = {"functions": {"a": 5, "b": 0}, "throttled": ["b"], "tables": ["log"]}
    values = {"SLEEPER_WATCHED": json.dumps(watched), "SLEEPER_WATCH_MINUTES": "10"}
    on_demand = [{"Ref": "OutputsCollect01234567Ref"}, ", ", {"Ref": "OutputsRarely01234567Ref"}]
    variables = {"Variables": {**values, "SLEEPER_SOURCES": {"Fn::Join": ["", on_demand]}}}
    template = {
        "Resources": {
            "FilesFanOut01234567": resource("AWS::Lambda::Function", MemorySize=1024),
            "FilesHandler89ABCDEF": resource("AWS::Lambda::Function", MemorySize=2048),
            "Start01234567": resource(
                "AWS::Lambda::Function", MemorySize=512, Environment=variables
            ),
            "Queue": resource("AWS::SQS::Queue", FifoQueue=True, RedrivePolicy={}),
            "OtherQueue": resource("AWS::SQS::Queue"),
            "DeadLetters": resource("AWS::SQS::Queue"),
            "Collect89ABCDEF": source({"Fn::GetAtt": ["Queue", "Arn"]}, "FilesHandler89ABCDEF"),
            "Rarely89ABCDEF": source({"Fn::GetAtt": ["OtherQueue", "Arn"]}, "Split01234567"),
            "Split89ABCDEF": source({"Fn::GetAtt": ["OtherQueue", "Arn"]}),
            "Stream89ABCDEF": source({"Ref": "the stream"}),
            "EachMinute": rule("Start01234567", "rate(1 minute)"),
            "EachHour": rule("FilesFanOut01234567", "rate(1 hour)"),
            "Alarm": resource("AWS::CloudWatch::Alarm"),
            "Expression": resource("AWS::CloudWatch::Alarm", Metrics=[1, 2]),
            "Logs": resource(
                "AWS::EC2::VPCEndpoint", VpcEndpointType="Interface", SubnetIds=["a", "b"]
            ),
            "Objects": resource("AWS::EC2::VPCEndpoint", VpcEndpointType="Gateway"),
        }
    }
    parts = parts_of([template])
    minutes, hours = 730 * 60, 730
    assert parts.schedules == Runs(minutes + hours, pytest.approx(0.1 * (minutes / 2 + hours)))
    # The fan-out starts a function for the table.
    assert parts.table == Runs(hours, pytest.approx(0.1 * hours * 2))
    # One queue without messages is not polled, and another one for 10 minutes of each hour.
    assert parts.polls_month == 15 * minutes
    assert parts.fifo_polls_month == pytest.approx(15 * minutes / 6)
    assert parts.metrics_month == hours * (1 + 3 + 1)
    assert parts.counts_month == 6 * hours * 2
    assert (parts.alarm_metrics, parts.endpoint_zones) == (3, 2)
