"""Sends each table's id to the queue of a scheduled operation."""

import os

from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.workers.lambda_function import Event, lambda_function
from sleeper.workers.schedule import fan_out_tables


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, int]:  # noqa: ARG001 (the event has no content)
    """SLEEPER_OPERATION names the queue."""
    operation = QueueName(os.environ["SLEEPER_OPERATION"])
    return {"tables": fan_out_tables(instance, operation)}
