"""Finds the partitions of tables that are to be split, and sends them to be."""

from sleeper.reports.metric import Metric
from sleeper.tables.table_ref import TableRef
from sleeper.wiring.instance import Instance
from sleeper.wiring.lambda_function import Event, lambda_function, put_metrics
from sleeper.wiring.message_batches import Failures, run_for_tables
from sleeper.wiring.queue_name import QueueName
from sleeper.wiring.split_sending import send_splits_once


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Takes ids of tables off their FIFO queue."""

    def operate(ref: TableRef) -> None:
        sent = send_splits_once(instance, ref)
        if sent:
            put_metrics(instance, ref.name, {Metric.PARTITIONS_TO_SPLIT: sent})

    return run_for_tables(
        event, instance, QueueName.FIND_PARTITIONS_TO_SPLIT, operate, online_only=True
    )
