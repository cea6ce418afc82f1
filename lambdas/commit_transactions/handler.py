"""Commits the queued transactions of compaction and ingest tasks, one entry per table."""

from collections.abc import Mapping
from typing import Any

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSEvent

from sleeper.committer import commit_messages
from sleeper.instance import Instance
from sleeper.reports.metric import Metric
from sleeper.statestore.transactions.transaction import Status
from sleeper.workers.lambda_function import Event, lambda_function, put_metrics_of_tables
from sleeper.workers.message_batch import Failures, received_message

_METRICS: dict[str, Status] = {
    Metric.COMMITS_APPLIED: Status.APPLIED,
    Metric.COMMITS_ALREADY_DONE: Status.ALREADY_DONE,
    Metric.COMMITS_REFUSED: Status.REFUSED,
}


@lambda_function
def handler(instance: Instance, event: Event) -> Failures:
    """Handles a batch of commits from a FIFO queue with one group per table.

    Unavailable commits return to the queue; refusals are recorded in the job tracker.
    """
    messages = [received_message(record) for record in SQSEvent(dict(event)).records]
    report = commit_messages(instance, messages)
    metrics = {
        ref.name: {metric: counts[status] for metric, status in _METRICS.items()}
        for ref, counts in report.counts.items()
    }
    put_metrics_of_tables(instance, metrics)
    return _failures(report.failed)


def _failures(message_ids: list[str]) -> Mapping[str, Any]:
    return {"batchItemFailures": [{"itemIdentifier": each} for each in message_ids]}
