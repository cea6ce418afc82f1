"""The use of an instance that AWS bills, by the metrics of CloudWatch of the last days.

The *parts* of the deployment (`sleeper.billed.parts`) are its functions with their memory, its
tasks with their size, and the number of its alarms. CloudWatch does not count what it bills itself,
requests to S3 and KMS, and requests for the lengths of queues: these are calculated from the parts.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sleeper.aws.clients import aws_client
from sleeper.aws.errors import translate_errors
from sleeper.aws.metrics import Series, Values, read_metrics
from sleeper.billing.prices import TaskSize, function_amounts, task_amounts
from sleeper.billing.use import MonthlyUse
from sleeper.errors import InvalidRequestError
from sleeper.jobs.tracker import TaskTracker
from sleeper.properties.deployed import (
    BILLED_PARTS,
    BULK_IMPORT,
    CONFIG,
    DEPLOYED_QUEUES,
    DEPLOYED_TABLES,
    QUERY_RESULTS,
    SCHEDULE_RULES,
    TABLE_DATA,
    TASK_SUBNETS,
    DeployedTable,
    stack_name,
)
from sleeper.properties.deployment import KMS_KEY, TRACING
from sleeper.properties.instance import (
    ID,
    LOG_RETENTION_DAYS,
    NETWORK_ENDPOINTS,
    OPTIONAL_STACKS,
    OptionalStack,
)
from sleeper.properties.values import InstanceProperties

DAYS = 7
_MONTH_DAYS = 365 / 12
_DAY_SECONDS = 24 * 3600
_HOURS_MONTH = _MONTH_DAYS * 24
_WATCH_MINUTES = 5
_GIB = 2**30
_ENDPOINTS = 4
_TASKS_MAX = 10_000
_COUNTING = ("start-tasks-", "fan-out-")
"""The beginnings of the names of functions that count the messages of a queue in each run."""


@dataclass(frozen=True, slots=True)
class _Parts:
    functions: Mapping[str, int]
    tasks: Mapping[str, TaskSize]
    alarms: int


def read_monthly_use(
    properties: InstanceProperties, tasks: TaskTracker, now_ms: int, data_bytes: int
) -> list[MonthlyUse]:
    """Returns the use of a month at the pace of the last days.

    The bytes of data files, `data_bytes`, are left out of that of the bucket, because they are
    known of each table. InvalidRequestError if an older version deployed the instance.
    """
    parts = _parse_parts(properties)
    prefix = f"{stack_name(properties.get(ID))}-"
    found = _Metrics(now_ms)
    runs = found.months("Invocations", "FunctionName", parts.functions, prefix)
    seconds = found.months("Duration", "FunctionName", parts.functions, prefix)
    return [
        *_use_of_functions(parts, runs, seconds),
        *_use_of_tasks(parts, tasks, now_ms),
        *_use_of_queues(properties, found),
        *_use_of_tables(properties, found),
        *_use_of_buckets(properties, found, data_bytes),
        *_use_of_logs(properties, parts, prefix, found),
        *_calculate(properties, parts, runs),
    ]


def _parse_parts(properties: InstanceProperties) -> _Parts:
    entries = [each.split(":") for each in properties.get(BILLED_PARTS)]
    if not entries:
        raise InvalidRequestError(
            f"property {BILLED_PARTS.name} is not set: deploy the instance again"
        )
    return _Parts(
        {rest[0]: int(rest[1]) for kind, *rest in entries if kind == "function"},
        {
            rest[0]: TaskSize(int(rest[1]) / 1024, int(rest[2]) / 1024)
            for kind, *rest in entries
            if kind == "task"
        },
        sum(int(rest[0]) for kind, *rest in entries if kind == "alarms"),
    )


class _Metrics:
    """Reads sums of the last days, as those of a month."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def months(
        self, metric: str, dimension: str, names: Iterable[str], prefix: str = "", index: str = ""
    ) -> dict[str, float]:
        """Returns the sum of a metric for each name, or of an index of each table."""
        more = (("GlobalSecondaryIndexName", index),) if index else ()
        series = {
            Series(metric, dimension, prefix + name, "Sum", _DAY_SECONDS, more): name
            for name in names
        }
        found = self._read(series)
        month = _MONTH_DAYS / DAYS
        return {
            series[each]: month * sum(value for _, value in values)
            for each, values in found.items()
        }

    def newest(self, metric: str, buckets: Sequence[str]) -> dict[str, float]:
        """Returns the newest daily value of a metric of each bucket."""
        more = (("StorageType", "StandardStorage"),)
        series = {
            Series(metric, "BucketName", name, "Average", _DAY_SECONDS, more): name
            for name in buckets
        }
        return {
            series[each]: values[-1][1] for each, values in self._read(series).items() if values
        }

    def _read(self, series: Mapping[Series, str]) -> Values:
        return read_metrics(series, self._now_ms, timedelta(days=DAYS))


def _use_of_functions(
    parts: _Parts, runs: Mapping[str, float], milliseconds: Mapping[str, float]
) -> Iterator[MonthlyUse]:
    for name, memory_mb in parts.functions.items():
        if runs[name]:
            amounts = function_amounts(memory_mb, runs[name], milliseconds[name] / 1000)
            yield MonthlyUse("functions", f"{name}: {runs[name]:,.0f} runs", amounts, True)


def _use_of_tasks(parts: _Parts, tasks: TaskTracker, now_ms: int) -> Iterator[MonthlyUse]:
    begin_ms = now_ms - DAYS * _DAY_SECONDS * 1000
    for kind, size in parts.tasks.items():
        hours = 0.0
        for task in tasks.recent(kind, _TASKS_MAX):
            start, end = task.started_ms or now_ms, task.ended_ms or task.last_seen_ms
            hours += max(0, end - max(start, begin_ms)) / 3_600_000
        if hours:
            hours *= _MONTH_DAYS / DAYS
            detail = f"{kind}: {hours:,.1f} hours of tasks"
            yield MonthlyUse("tasks", detail, task_amounts(size, hours), True)


def _use_of_queues(properties: InstanceProperties, found: _Metrics) -> Iterator[MonthlyUse]:
    queues = {
        url.rpartition("/")[2]: each.fifo
        for each in DEPLOYED_QUEUES.values()
        if (url := properties.get(each.url))
    }
    counts = [
        found.months(metric, "QueueName", queues)
        for metric in (
            "NumberOfMessagesSent",
            "NumberOfMessagesReceived",
            "NumberOfMessagesDeleted",
            "NumberOfEmptyReceives",
        )
    ]
    for name, is_fifo in queues.items():
        count = sum(each[name] for each in counts)
        if count:
            price = "sqs_million_fifo_requests" if is_fifo else "sqs_million_requests"
            yield MonthlyUse("queues", f"{name}: {count:,.0f} requests", {price: count}, True)


def _use_of_tables(properties: InstanceProperties, found: _Metrics) -> Iterator[MonthlyUse]:
    tables = {name: each for each in DEPLOYED_TABLES if (name := properties.get(each.place))}
    reads, writes = (
        _units(tables, found, f"Consumed{kind}CapacityUnits") for kind in ("Read", "Write")
    )
    client = aws_client("dynamodb")
    for name in tables:
        with translate_errors(f"table {name}"):
            size = client.describe_table(TableName=name)["Table"].get("TableSizeBytes", 0)
        amounts = {
            "dynamodb_million_read_units": reads[name],
            "dynamodb_million_write_units": writes[name],
            "dynamodb_gb_month": size / _GIB,
        }
        if any(amounts.values()):
            detail = f"{name}: {reads[name]:,.0f} read and {writes[name]:,.0f} write units"
            yield MonthlyUse("tables of DynamoDB", detail, amounts, True)


def _units(tables: Mapping[str, DeployedTable], found: _Metrics, metric: str) -> Counter[str]:
    """Returns the units of tables, with those of their indexes."""
    units = Counter(found.months(metric, "TableName", tables))
    for name in {each.index.name for each in tables.values() if each.index is not None}:
        indexed = [
            each for each, table in tables.items() if table.index and table.index.name == name
        ]
        units.update(found.months(metric, "TableName", indexed, index=name))
    return units


def _use_of_buckets(
    properties: InstanceProperties, found: _Metrics, data_bytes: int
) -> Iterator[MonthlyUse]:
    places = [each.place for each in (CONFIG, TABLE_DATA, QUERY_RESULTS, BULK_IMPORT)]
    names = [name for place in places if (name := properties.get(place))]
    for name, size in found.newest("BucketSizeBytes", names).items():
        is_data = name == properties.get(TABLE_DATA.place)
        gib = max(0, size - (data_bytes if is_data else 0)) / _GIB
        other = " of other objects and old versions" if is_data else ""
        yield MonthlyUse("buckets", f"{name}: {gib:,.1f} GiB{other}", {"s3_gb_month": gib}, True)


def _use_of_logs(
    properties: InstanceProperties, parts: _Parts, prefix: str, found: _Metrics
) -> Iterator[MonthlyUse]:
    size = found.months("IncomingBytes", "LogGroupName", parts.functions, f"/aws/lambda/{prefix}")
    gib = sum(size.values()) / _GIB
    days = properties.get(LOG_RETENTION_DAYS)
    months = days / _MONTH_DAYS if days > 0 else 12
    amounts = {"logs_gb": gib, "logs_gb_month": gib * months}
    yield MonthlyUse("logs", f"{gib:,.2f} GiB of functions", amounts, True)


def _calculate(
    properties: InstanceProperties, parts: _Parts, runs: Mapping[str, float]
) -> Iterator[MonthlyUse]:
    """Yields what AWS does not count."""

    def use(part: str, detail: str, **amounts: float) -> MonthlyUse:
        return MonthlyUse(part, detail, amounts, False)

    all_runs = sum(runs.values())
    counting = sum(count for name, count in runs.items() if name.startswith(_COUNTING))
    queues = sum(1 for each in DEPLOYED_QUEUES.values() if properties.get(each.url))
    watched = _HOURS_MONTH * 60 / _WATCH_MINUTES * queues
    yield use("alarms", f"{parts.alarms} alarms", alarm_month=parts.alarms)
    yield use("counts of queues", "two a queue", sqs_million_requests=2 * (watched + counting))
    metrics = _HOURS_MONTH * (4 + len(properties.get(SCHEDULE_RULES)))
    yield use("metrics that the watch reads", "each hour", cloudwatch_million_metrics=metrics)
    yield use("reads of properties", "one a run", s3_million_reads=all_runs)
    if properties.get(TRACING):
        yield use("traces", "one a run", xray_million_traces=all_runs)
    if OptionalStack.DASHBOARD in properties.get(OPTIONAL_STACKS):
        yield use("dashboard", "one", dashboard_month=1)
    if properties.get(KMS_KEY) is not None:
        # One in five minutes for each role and each table or queue that it uses.
        requests = len(parts.functions) * _HOURS_MONTH * 60 / 5
        yield use("KMS", "key and requests", kms_key_month=1, kms_million_requests=requests)
    if properties.get(NETWORK_ENDPOINTS):
        count = _ENDPOINTS * len(properties.get(TASK_SUBNETS))
        hours = count * _HOURS_MONTH
        yield use("interface endpoints", f"{count} in zones", interface_endpoint_hour=hours)
