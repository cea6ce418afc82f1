"""Problems of export queues: dead exports, exporters that fail, and exports that wait for long."""

from collections.abc import Iterator

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
            reason = (
                f"{pluralize(len(queue.failing), 'bucket')} of exports: {queue.failing[0].error}"
            )
            yield _problem(ProblemState.FAILING, queue, reason)
        elif (
            queue.state is QueueState.ACTIVE
            and queue.oldest_ms is not None
            and instance.clock() - queue.oldest_ms > _LATE_MS
        ):
            yield _problem(ProblemState.LAGGING, queue, f"{queue.pending:,} pending exports")


def _problem(state: ProblemState, queue: ReportedQueue, reason: str) -> Problem:
    return Problem(state, "export queue", queue.name, reason, queue.oldest_ms)
