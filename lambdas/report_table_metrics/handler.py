"""Reports what tables hold as metrics."""

from sleeper.tables.table_ref import TableRef
from sleeper.wiring.instance import Instance
from sleeper.wiring.lambda_function import Event, lambda_function, put_metrics
from sleeper.wiring.message_batches import Failures, run_for_tables
from sleeper.wiring.queue_name import QueueName
from sleeper.wiring.reports import table_metrics


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Takes ids of tables off their FIFO queue."""

    def operate(ref: TableRef) -> None:
        put_metrics(instance, ref.name, table_metrics(instance, ref))

    return run_for_tables(event, instance, QueueName.TABLE_METRICS, operate)
