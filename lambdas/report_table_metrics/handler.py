"""Publishes the contents of tables as metrics."""

from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.reports.metric import gather_table_metrics
from sleeper.tables import TableRef
from sleeper.workers.lambda_function import Event, lambda_function, put_metrics
from sleeper.workers.message_batch import Failures, run_for_tables


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Handles a batch of messages with table ids."""

    def operate(ref: TableRef) -> None:
        put_metrics(instance, ref.name, gather_table_metrics(instance.tables.state(ref.id)))

    return run_for_tables(event, instance, QueueName.TABLE_METRICS, operate)
