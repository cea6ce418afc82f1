"""Sends each table's id to the queue of an operation, when the operation's rule says so."""

import os

from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.workers.lambda_function import Event, lambda_function
from sleeper.workers.table_operations import fan_out_tables


@lambda_function
def handler(instance: Instance, event: Event) -> dict[str, int]:  # noqa: ARG001 (only that it came)
    """SLEEPER_OPERATION names the queue."""
    operation = QueueName(os.environ["SLEEPER_OPERATION"])
    return {"tables": fan_out_tables(instance, operation)}
