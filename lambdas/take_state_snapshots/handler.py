"""Stores snapshots of tables' states and trims their logs."""

from sleeper.reports.metric import Metric
from sleeper.tables.table_ref import TableRef
from sleeper.wiring.collecting import snapshot_table
from sleeper.wiring.instance import Instance
from sleeper.wiring.lambda_function import Event, lambda_function, put_metrics
from sleeper.wiring.message_batches import Failures, run_for_tables
from sleeper.wiring.queue_name import QueueName


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Takes ids of tables off their FIFO queue."""

    def operate(ref: TableRef) -> None:
        taken = snapshot_table(instance, ref)
        if taken is not None:
            put_metrics(instance, ref.name, {Metric.STATE_SNAPSHOTS: 1})

    return run_for_tables(event, instance, QueueName.STATE_SNAPSHOTS, operate)
