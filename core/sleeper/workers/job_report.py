"""Reports on the jobs that a worker ran."""

from dataclasses import replace

from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError, StateMovedOnError
from sleeper.instance import Instance
from sleeper.jobs.message_members import read_named_job
from sleeper.jobs.query_tracker import QueryState
from sleeper.jobs.queue import Message, QueueName
from sleeper.workers.run_status import JobOutcome, JobReport

_QUERIES = (QueueName.QUERY, QueueName.LEAF_QUERY)
# Job creation repeats jobs of these queues that are still needed.
_REPEATED = (QueueName.COMPACTION, QueueName.SPLITTING)


def report_job(
    instance: Instance, queue: QueueName, message: Message, rows: int, seconds: float
) -> JobReport:
    """Reports a job that ended without an error. A query records its failure itself."""
    report = _describe(instance, queue, message, JobOutcome.DONE, seconds)
    reason = _find_query_failure(instance, report) if queue in _QUERIES else None
    if reason is not None:
        return replace(report, outcome=JobOutcome.FAILED, reason=reason)
    return replace(report, rows=rows)


def report_failure(
    instance: Instance,
    queue: QueueName,
    message: Message,
    error: Exception,
    seconds: float,
    retry_seconds: float | None = None,
) -> JobReport:
    """Reports a failed job, which is retried if `retry_seconds` is not None."""
    if retry_seconds is None and _is_outdated(queue, error):
        outcome = JobOutcome.DROPPED
    elif retry_seconds is None and isinstance(error, InvalidRequestError | NotFoundError):
        outcome = JobOutcome.REJECTED
    else:
        outcome = JobOutcome.FAILED
    report = _describe(instance, queue, message, outcome, seconds)
    reason = str(error) if isinstance(error, SleeperError) else repr(error)
    return replace(
        report,
        reason=reason,
        retry_ms=None if retry_seconds is None else round(1000 * retry_seconds),
    )


def _is_outdated(queue: QueueName, error: Exception) -> bool:
    return isinstance(error, StateMovedOnError) or (
        queue in _REPEATED and isinstance(error, NotFoundError)
    )


def _describe(
    instance: Instance, queue: QueueName, message: Message, outcome: JobOutcome, seconds: float
) -> JobReport:
    named = read_named_job(message.body)
    table = named.find_table_name(instance.tables.index)
    return JobReport(queue, message.message_id, outcome, round(1000 * seconds), named.job, table)


def _find_query_failure(instance: Instance, report: JobReport) -> str | None:
    try:
        status = instance.queries.tracker().query(report.job or report.message_id)
    except SleeperError:
        return None
    failed = status.state in {QueryState.FAILED, QueryState.PARTIALLY_FAILED}
    return status.error or "a part of the query failed" if failed else None
