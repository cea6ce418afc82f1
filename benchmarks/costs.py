"""Costs on AWS: requests counted on local servers and processor seconds, times list prices."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import costs_tasks
from benchmarks.billed_requests import READ_UNITS, S3_READS, S3_WRITES, SQS_REQUESTS
from benchmarks.idle import IdleParts, Runs, idle_parts
from benchmarks.measuring import Task, run_by_turns
from benchmarks.result import Aim, Figure, Result, figure
from benchmarks.rows import unsorted_files
from benchmarks.settings import Settings
from sleeper.billing.prices import Prices, TaskSize, read_prices
from sleeper.bulk_export.properties import EXPORT_TASK_CPU, EXPORT_TASK_MEMORY_MB
from sleeper.properties.declaration import Property
from sleeper.properties.deployment import QUERY_MEMORY_MB
from sleeper.properties.instance import (
    COMPACTION_ARM_CPU,
    COMPACTION_ARM_MEMORY_MB,
    INGEST_TASK_CPU,
    INGEST_TASK_MEMORY_MB,
)

_ROWS = 16_000_000
_FILES = 4
_TB = 1e12
_MILLION = 1e6
_EMR_A_TB = 8.37
# Lambda logs the beginning and the end of a run.
_LOG_GIB_A_RUN = 600 / 2**30
# An assumed time to the first byte, because the local server has none.
_S3_SECONDS = 0.03
SQS_STANDARD = "sqs_million_requests"
CLOUDWATCH_METRICS = "cloudwatch_million_metrics"
# The message is sent and deleted, and the head and the tail of the log are read.
_REQUESTS_OF_TABLE = {SQS_REQUESTS: 2, READ_UNITS: 2}


def idle_month(prices: Prices, parts: IdleParts, requests: Mapping[str, float]) -> dict[str, float]:
    """Returns the parts of an idle month. Each scheduled function makes these `requests`."""
    polls = {SQS_STANDARD: parts.polls_month, SQS_REQUESTS: parts.fifo_polls_month}
    watch = {SQS_STANDARD: parts.counts_month, CLOUDWATCH_METRICS: parts.metrics_month}
    hours = parts.endpoint_zones * prices.dollars["hours_month"]
    return {
        "schedules": _price_runs(prices, parts.schedules, requests),
        "each table": _price_runs(prices, parts.table, _REQUESTS_OF_TABLE),
        "polls of queues": prices.cost(polls),
        "the watch": prices.cost(watch),
        "logs": prices.cost(
            {"logs_gb": _LOG_GIB_A_RUN * (parts.schedules.count + parts.table.count)}
        ),
        "alarms": prices.cost({"alarm_month": parts.alarm_metrics}),
        "interface endpoints": prices.cost({"interface_endpoint_hour": hours}),
    }


def _price_runs(prices: Prices, runs: Runs, requests: Mapping[str, float]) -> float:
    """Returns the price of runs of functions that make these requests each."""
    functions = {
        "lambda_million_invocations": runs.count,
        "lambda_arm_gb_second": runs.gb_seconds,
    }
    return prices.cost(functions) + runs.count * prices.requests(requests)


_SIZES: Mapping[str, tuple[Property[int], Property[int]]] = {
    "ingest": (INGEST_TASK_CPU, INGEST_TASK_MEMORY_MB),
    "compaction": (COMPACTION_ARM_CPU, COMPACTION_ARM_MEMORY_MB),
    "export": (EXPORT_TASK_CPU, EXPORT_TASK_MEMORY_MB),
}
_AIMS = {"compaction": Aim(_EMR_A_TB, is_most=True)}


def measure(settings: Settings) -> Result:
    rows = settings.rows or _ROWS
    source = unsorted_files(settings.folder / "costs", rows, _FILES)
    task = Task(costs_tasks.__name__, "count", {"source": str(source)})
    runs = [run.answer for run in run_by_turns({"costs": task}, settings.repeats)["costs"]]
    prices = read_prices()
    idle = [idle_month(prices, idle_parts(), run["schedule"]["requests"]) for run in runs[:1]]
    figures = (
        *_idle_figures(idle),
        *(each for job in _SIZES for each in _job_figures(prices, job, [r[job] for r in runs])),
        *_lookup_figures(prices, "lookups", [run["lookup"] for run in runs]),
        *_lookup_figures(prices, "queries by message", [run["query"] for run in runs]),
    )
    work = (
        "Jobs of an instance whose S3, DynamoDB and SQS are servers on this machine (SeaweedFS,"
        f" dynoxide, ministack) behind proxies that count: {_FILES} ingests of {rows // _FILES:,}"
        " rows, the compaction of their files into one, its export, lookups of single keys in a"
        f" warm process. Prices are of {prices.region}: {prices.source}. A TB is of the files that"
        " a job reads, and a TB of jobs as small as these takes more requests than one of larger"
        " jobs. Tasks are Fargate on ARM of the default sizes that keep their processors busy, each"
        f" as fast as this machine's. A request to S3 takes {_S3_SECONDS * 1000:.0f} ms in"
        f" functions of {QUERY_MEMORY_MB.default:,} MiB."
    )
    return Result("costs", work, figures)


def _idle_figures(months: Sequence[Mapping[str, float]]) -> list[Figure]:
    figures = [
        figure(f"an idle month: {name}", [month[name] for month in months], "$")
        for name in months[0]
    ]
    sums = [sum(month.values()) for month in months]
    return [*figures, figure("an idle month: sum", sums, "$")]


def _job_figures(prices: Prices, job: str, runs: Sequence[Mapping[str, Any]]) -> list[Figure]:
    cpus, memory_mb = (declaration.default or 0 for declaration in _SIZES[job])
    size = TaskSize(cpus / 1024, memory_mb / 1024)
    requests = [prices.requests(run["requests"]) * _TB / run["bytes"] for run in runs]
    tasks = [prices.task(size, run["cpu"]) * _TB / run["bytes"] for run in runs]
    hours = [run["cpu"] / 3600 * _TB / run["bytes"] for run in runs]
    sums = [a + b for a, b in zip(requests, tasks, strict=True)]
    return [
        figure(f"a TB: {job}", sums, "$", _AIMS.get(job)),
        figure(f"a TB: {job}, its requests", requests, "$"),
        figure(f"a TB: {job}, processor time", hours, "h"),
    ]


def _lookup_figures(prices: Prices, name: str, runs: Sequence[Mapping[str, Any]]) -> list[Figure]:
    s3 = [sum(run["requests"].get(price, 0) for price in (S3_READS, S3_WRITES)) for run in runs]
    memory_mb = QUERY_MEMORY_MB.default or 0
    dollars = [
        prices.function(memory_mb, run["cpu"] + requests * _S3_SECONDS)
        + prices.requests(run["requests"])
        for run, requests in zip(runs, s3, strict=True)
    ]
    return [
        figure(f"a million {name}", [_MILLION * each for each in dollars], "$"),
        figure(f"a million {name}: requests to S3 each", s3, ""),
        figure(f"a million {name}: processor time each", [run["cpu"] * 1000 for run in runs], "ms"),
    ]
