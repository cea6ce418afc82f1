"""Deletes what dead runs left behind in tables' folders."""

from sleeper.reports.metric import Metric
from sleeper.tables.table_ref import TableRef
from sleeper.wiring.collecting import collect_orphans_of
from sleeper.wiring.instance import Instance
from sleeper.wiring.lambda_function import Event, lambda_function, put_metrics
from sleeper.wiring.message_batches import Failures, run_for_tables
from sleeper.wiring.queue_name import QueueName


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Takes ids of tables off their FIFO queue."""

    def operate(ref: TableRef) -> None:
        done = collect_orphans_of(instance, ref)
        if done.objects:
            put_metrics(instance, ref.name, {Metric.ORPHANS_COLLECTED: done.objects})

    return run_for_tables(event, instance, QueueName.ORPHAN_COLLECTION, operate)
