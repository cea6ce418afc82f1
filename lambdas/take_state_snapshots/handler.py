"""Stores snapshots of tables' states and trims their logs."""

from sleeper.garbage_collection.service import snapshot_table
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
        taken = snapshot_table(instance, ref)
        if taken is not None:
            put_metrics(instance, ref.name, {Metric.STATE_SNAPSHOTS: 1})

    return run_for_tables(event, instance, QueueName.STATE_SNAPSHOTS, operate)
