"""ECS: launches of tasks within the quotas of an account."""

from simulation.scale.limits import RUN_TASK_COUNT_MAX, Account
from simulation.scale.timeline import Timeline

_REQUEST_SECONDS = 0.25


class Launcher:
    """Launches of an account: a bucket of launches, and processors."""

    def __init__(self, timeline: Timeline, account: Account) -> None:
        self.cpus_used = self.cpus_most = 0.0
        self.refused = 0
        self.is_out = False
        self._timeline = timeline
        self._account = account
        self._tokens = float(account.fargate_launches)
        self._filled_at = 0.0

    def launch(self, count: int, cpus: float) -> list[float]:
        """Returns the delay of each launch. It stops at the first request that is refused.

        A request that finds too few processors starts fewer tasks.
        """
        delays: list[float] = []
        seconds = 0.0
        while len(delays) < count and not self.is_out:
            room = int((self._account.fargate_cpus - self.cpus_used) // cpus)
            requested = min(count - len(delays), RUN_TASK_COUNT_MAX, room)
            if requested <= 0 or not self._take(requested, cpus, self._timeline.now + seconds):
                self.refused += count - len(delays)
                break
            seconds += _REQUEST_SECONDS
            delays += [seconds] * requested
        return delays

    def end(self, cpus: float) -> None:
        """Returns the processors of a task that ended."""
        self.cpus_used -= cpus

    def _take(self, count: int, cpus: float, at: float) -> bool:
        refilled = (at - self._filled_at) * self._account.fargate_launches_second
        self._tokens = min(self._account.fargate_launches, self._tokens + max(0.0, refilled))
        self._filled_at = max(at, self._filled_at)
        if self._tokens < count:
            return False
        self._tokens -= count
        self.cpus_used += count * cpus
        self.cpus_most = max(self.cpus_most, self.cpus_used)
        return True
