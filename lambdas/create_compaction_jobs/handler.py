"""Creates the compaction jobs that tables need."""

from sleeper.compaction.plan import create_table_jobs
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
        done = create_table_jobs(instance, ref)
        if done.did_anything:
            counts: dict[str, int] = {
                Metric.COMPACTION_JOBS_CREATED: done.created,
                Metric.COMPACTION_JOBS_RELEASED: done.released,
                Metric.COMPACTION_JOBS_SENT_AGAIN: done.dispatched_again,
                Metric.REFERENCES_PUSHED_DOWN: done.references_pushed_down,
            }
            put_metrics(instance, ref.name, counts)

    return run_for_tables(
        event, instance, QueueName.COMPACTION_JOB_CREATION, operate, online_only=True
    )
