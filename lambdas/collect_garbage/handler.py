"""Deletes files of tables that nobody needs any more."""

from sleeper.reports.metric import Metric
from sleeper.tables.table_ref import TableRef
from sleeper.wiring.collecting import collect_garbage_of
from sleeper.wiring.instance import Instance
from sleeper.wiring.lambda_function import Event, lambda_function, put_metrics
from sleeper.wiring.message_batches import Failures, run_for_tables
from sleeper.wiring.queue_name import QueueName


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Takes ids of tables off their FIFO queue."""

    def operate(ref: TableRef) -> None:
        done = collect_garbage_of(instance, ref)
        if done.files:
            put_metrics(instance, ref.name, {Metric.FILES_COLLECTED: done.files})

    return run_for_tables(event, instance, QueueName.GARBAGE_COLLECTION, operate)
