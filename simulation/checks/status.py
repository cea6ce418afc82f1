"""The rule that the status answers, and that its problems are real.

A settled instance lags in nothing and has missed nothing. What failed for good stays a problem, and
so does a schedule whose tables were deleted or renamed: somebody must change it.
"""

from collections.abc import Sequence

from simulation.checks.look import Look
from simulation.checks.violation import Violation, require
from sleeper.adapters.store import AdapterStore
from sleeper.errors import NotFoundError, SleeperError
from sleeper.instance import Instance
from sleeper.reports.problem import Problem, ProblemState
from sleeper.reports.status import gather_status
from sleeper.stash.schedules import ScheduleStore

_ANSWERS = "the status answers"
_STEP_PROBABILITY = 0.1
# A process may be paused for more than an hour.
_PAUSE_MS = 2 * 3_600_000
_REAL = "a settled instance has only problems that somebody must solve"


def check_status(look: Look) -> None:
    """Asks for the status now and then, and at the end judges it."""
    if not look.is_end and look.random.random() > _STEP_PROBABILITY:
        return
    try:
        problems = gather_status(look.instance)
    except SleeperError as error:
        raise Violation(_ANSWERS, f"{type(error).__name__}: {error}") from error
    broken = [each for each in problems if each.kind == "check"]
    require(not broken, _ANSWERS, "a check fails", problems=broken)
    if look.is_end and look.has_right_clocks:
        lasting = [each for each in problems if _is_temporary(look.instance, each)]
        require(not lasting, _REAL, "it is settled", problems=lasting)


def _is_temporary(instance: Instance, problem: Problem) -> bool:
    if problem.state not in (ProblemState.OVERDUE, ProblemState.LAGGING):
        return False
    if problem.since_ms is not None and instance.clock() - problem.since_ms < _PAUSE_MS:
        return False
    try:
        return not _lacks_table(instance, problem)
    except NotFoundError:
        return False


def _lacks_table(instance: Instance, problem: Problem) -> bool:
    """Returns whether a stash has no table to copy. NotFoundError if a named one is not active."""
    root = instance.storage.root
    names: Sequence[str] = ()
    if problem.kind == "adapter":
        names = [AdapterStore(root).get(problem.name).sink.table]
    elif problem.kind == "stash":
        names = ScheduleStore(root).find(problem.name).tables
        if not instance.tables.index.list():
            return True
    for name in names:
        instance.tables.index.find(name)
    return False
