"""Problems of adapters: schedules that are late, and adapters whose last run failed or died."""

from collections.abc import Iterator

from sleeper.adapters.report import gather_adapter, recent_runs
from sleeper.adapters.store import AdapterStore
from sleeper.errors import NotFoundError
from sleeper.instance import Instance
from sleeper.jobs.status import JobState
from sleeper.reports.jobs import LOST
from sleeper.reports.problem import Problem, ProblemState, check_each

_STATES = {
    LOST: ProblemState.DEAD,
    JobState.FAILED.value: ProblemState.FAILING,
    JobState.REJECTED.value: ProblemState.FAILING,
}


def find_problems(instance: Instance) -> Iterator[Problem]:
    """Yields the problems of the instance's adapters."""
    store = AdapterStore(instance.storage.root)
    names = store.names()
    recent = recent_runs(instance) if names else ()

    def find(name: str) -> Iterator[Problem]:
        try:
            each = gather_adapter(instance, store, store.get(name), recent)
        except NotFoundError:
            return  # deleted meanwhile
        job = each.job
        if each.missed_ms is not None:
            reason = (
                "nothing has started the run that was due (expected `sleeper run`, or on AWS the "
                "function of adapters, to run)"
            )
            yield Problem(ProblemState.OVERDUE, "adapter", name, reason, each.missed_ms)
        if job is not None and job.state in _STATES:
            reason = f"the last run is {job.state}: {job.reason}"
            yield Problem(_STATES[job.state], "adapter", name, reason, each.run.ended_ms)

    return check_each("adapter", names, find)
