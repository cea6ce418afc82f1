"""Deletes files that tables no longer need."""

from sleeper.garbage_collection.service import run_garbage_collection
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.reports.metric import Metric
from sleeper.tables import TableRef
from sleeper.workers.lambda_function import Event, lambda_function, put_metrics
from sleeper.workers.message_batch import Failures, run_for_tables


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Handles a batch of messages with table ids."""

    def operate(ref: TableRef) -> None:
        done = run_garbage_collection(instance, ref)
        if done.files:
            put_metrics(instance, ref.name, {Metric.FILES_COLLECTED: done.files})

    return run_for_tables(event, instance, QueueName.GARBAGE_COLLECTION, operate)
