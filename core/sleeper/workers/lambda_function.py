"""The decorator of Lambda handlers: JSON logs, traces, metrics and the instance.

Each container opens the instance in SLEEPER_INSTANCE once. Ports read properties when they need
them, so changes reach warm containers.
"""

import functools
import gc
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from aws_lambda_powertools import Tracer
from aws_lambda_powertools.utilities.data_classes import DynamoDBStreamEvent

from sleeper import INSTANCE_VARIABLE
from sleeper.instance import Instance
from sleeper.opening import open_instance
from sleeper.properties.instance import ID
from sleeper.reports.metric import (
    TABLE,
    TASK_KIND,
)
from sleeper.runs.remaining_time import lambda_context
from sleeper.workers.json_logs import log_as_json, log_metrics

R = TypeVar("R")
# By default 700. Modules and clients are many objects that stay, and a plan of 10,000 leaves adds
# more, so the collector would take 40 % of its processor time to find nothing.
_COLLECTED_OBJECTS = 20_000
Event = Mapping[str, Any]
Handler = Callable[[Event, Any], R]


def lambda_function(handler: Callable[[Instance, Event], R]) -> Handler[R]:
    """Returns Lambda's handler of event and context for a handler of instance and event."""
    logger = log_as_json()
    tracer = Tracer(auto_patch=False)

    @functools.wraps(handler)
    def handle(event: Event, context: Any) -> R:
        with lambda_context(context):
            return handler(_opened(os.environ.get(INSTANCE_VARIABLE)), event)

    traced: Handler[R] = tracer.capture_lambda_handler(handle, capture_response=False)
    logged: Handler[R] = logger.inject_lambda_context(traced)
    return logged


def changed_tables(event: Event) -> set[str]:
    """Returns the ids of the tables of new entries, of an event of the log table's stream."""
    records = DynamoDBStreamEvent(dict(event)).records
    return {each.dynamodb.keys["tableId"] for each in records if each.dynamodb is not None}


def put_metrics(instance: Instance, table: str, counts: Mapping[str, int]) -> None:
    """Logs metrics of a table in the embedded metric format of CloudWatch."""
    _put(instance, TABLE, {table: counts})


def put_metrics_of_tables(instance: Instance, counts: Mapping[str, Mapping[str, int]]) -> None:
    """Logs metrics of tables by name in the embedded metric format of CloudWatch."""
    _put(instance, TABLE, counts)


def put_task_metrics(instance: Instance, kind: str, counts: Mapping[str, int]) -> None:
    """Logs metrics of a kind of tasks or system in the embedded metric format of CloudWatch."""
    _put(instance, TASK_KIND, {kind: counts})


def _put(instance: Instance, dimension: str, counts: Mapping[str, Mapping[str, int]]) -> None:
    if any(counts.values()):
        instance_id = instance.properties().get(ID)
        for value, each in counts.items():
            if each:
                log_metrics(instance_id, dimension, value, each)


@functools.cache
def _opened(where: str | None) -> Instance:
    limit_garbage_collection()
    return open_instance(where)


def limit_garbage_collection() -> None:
    """Sets how often this process of a function collects garbage."""
    gc.set_threshold(_COLLECTED_OBJECTS)
