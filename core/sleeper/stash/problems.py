"""Problems of stashes: schedules that are late, and destinations whose last stash failed."""

from collections.abc import Iterator

from sleeper.errors import NotFoundError
from sleeper.instance import Instance
from sleeper.reports.problem import Problem, ProblemState
from sleeper.stash.record import StashRecord, StashRecords
from sleeper.stash.schedules import ScheduleStore
from sleeper.stash.status import get_status

_STATES = {"failed": ProblemState.FAILING, "interrupted": ProblemState.DEAD}


def find_problems(instance: Instance) -> Iterator[Problem]:
    """Yields the problems of the instance's stashes."""
    root = instance.storage.root
    for missed in ScheduleStore(root).list_missed(instance.clock()):
        name = missed.schedule.destination
        yield Problem(ProblemState.OVERDUE, "stash", name, missed.reason, missed.due_ms)
    last: dict[str, StashRecord] = {}
    for record in StashRecords(root).all():
        if record.digest not in last or last[record.digest].name < record.name:
            last[record.digest] = record
    for record in last.values():
        try:
            status = get_status(instance, record)
        except NotFoundError:
            continue  # deleted meanwhile
        if status.state in _STATES or status.omitted:
            state = _STATES.get(status.state, ProblemState.FAILING)
            reason = f"stash {record.name} is {status.state}: {status.reason}"
            yield Problem(state, "stash", record.request.destination, reason)
