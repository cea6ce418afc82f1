"""Problems of export queues: dead exports, exporters that fail, and exports that wait for long."""

from collections.abc import Iterator

from sleeper.errors import NotFoundError
from sleeper.export_queue.control import queue_status
from sleeper.export_queue.listings import QueueState, ReportedQueue, gather_export_queues
from sleeper.instance import Instance
from sleeper.reports.output import pluralize
from sleeper.reports.problem import Problem, ProblemState

_LATE_MS = 15 * 60_000


def find_problems(instance: Instance) -> Iterator[Problem]:
    """Yields the problems of the instance's export queues."""
    for queue in gather_export_queues(instance):
        if queue.dead:
            yield _problem(ProblemState.DEAD, queue, pluralize(queue.dead, "dead export"))
        if queue.state is QueueState.UNREADABLE:
            yield _problem(ProblemState.FAILING, queue, "its table cannot be read")
        elif queue.state is QueueState.FAILING:
            yield _problem(ProblemState.FAILING, queue, _find_reason(instance, queue))
        elif (
            queue.state is QueueState.ACTIVE
            and queue.oldest_ms is not None
            and instance.clock() - queue.oldest_ms > _LATE_MS
        ):
            yield _problem(ProblemState.LAGGING, queue, f"{queue.pending:,} pending exports")


def _problem(state: ProblemState, queue: ReportedQueue, reason: str) -> Problem:
    return Problem(state, "export queue", queue.name, reason, queue.oldest_ms)


def _find_reason(instance: Instance, queue: ReportedQueue) -> str:
    try:
        failing = queue_status(instance, queue.name).failing
    except NotFoundError:
        return "deleted meanwhile"
    buckets = pluralize(len(failing), "bucket")
    return f"{buckets} of exports: {failing[0].error}" if failing else "it has just recovered"
