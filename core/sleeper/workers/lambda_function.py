"""What every function does around its work: JSON logs, traces, metrics, and its instance.

A function's environment names the instance (SLEEPER_INSTANCE), which is opened once for each
container that runs the function. Its ports ask for properties whenever they are needed, so a
change reaches a container that is warm.
"""

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from aws_lambda_powertools import Tracer
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import (
    AmazonCloudWatchEMFProvider,
)

from sleeper.instance import INSTANCE_VARIABLE, Instance
from sleeper.jobs.event import JobKind
from sleeper.opening import open_instance
from sleeper.properties.instance import ID
from sleeper.reports.metric import INSTANCE, NAMESPACE, TABLE, TASK_KIND, Metric
from sleeper.runs.remaining_time import timed_by
from sleeper.workers.json_logs import log_as_json

R = TypeVar("R")
Event = Mapping[str, Any]
Handler = Callable[[Event, Any], R]


def lambda_function(handler: Callable[[Instance, Event], R]) -> Handler[R]:
    """Makes what Lambda calls with event and context of what works with instance and event."""
    logger = log_as_json()
    tracer = Tracer(auto_patch=False)

    @functools.wraps(handler)
    def called(event: Event, context: Any) -> R:
        with timed_by(context):
            return handler(_opened(os.environ.get(INSTANCE_VARIABLE)), event)

    traced: Handler[R] = tracer.capture_lambda_handler(called, capture_response=False)
    logged: Handler[R] = logger.inject_lambda_context(traced)
    return logged


def put_metrics(instance: Instance, table: str, counts: Mapping[Metric, int]) -> None:
    """Writes metrics of a table for CloudWatch, which takes them from the log."""
    _put(instance, TABLE, table, counts)


def put_task_metrics(instance: Instance, kind: JobKind, counts: Mapping[Metric, int]) -> None:
    """The same of a kind of tasks."""
    _put(instance, TASK_KIND, kind.value, counts)


def _put(instance: Instance, dimension: str, value: str, counts: Mapping[Metric, int]) -> None:
    if counts:
        # Not the service as a dimension: metrics are of the table, whichever function counts.
        metrics = AmazonCloudWatchEMFProvider(namespace=NAMESPACE, service="")
        metrics.add_dimension(INSTANCE, instance.properties().get(ID))
        metrics.add_dimension(dimension, value)
        for metric, count in counts.items():
            metrics.add_metric(metric.value, "Count", count)
        metrics.flush_metrics()


@functools.cache
def _opened(where: str | None) -> Instance:
    return open_instance(where)
