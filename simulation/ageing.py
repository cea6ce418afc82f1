"""Days that pass. What killed runs left becomes old enough to be collected, and leases, holds and
schedules are far behind.

Processes poll a few times a day meanwhile, because polls of days would take longer than a history.
"""

from simulation.actors import Actors
from simulation.checks.violation import Violation
from simulation.inspection import Inspector
from simulation.instances import SimulatedInstance
from simulation.world import World

_DAY_SECONDS = 86_400.0
_PARTS_OF_DAY = 4
_HOUR_SECONDS = 3_600.0
# The rules of a settled instance allow for pauses of two hours.
_LAST_PAUSE_SECONDS = 1_800.0
# The collection of orphans is due once a day at least, and takes a few messages on AWS.
_HOURS_MAX = 40


class Ageing:
    """Lets days pass in a history."""

    def __init__(self, world: World, instance: SimulatedInstance, actors: Actors) -> None:
        self._world, self._instance, self._actors = world, instance, actors

    def rest(self) -> None:
        """Lets so many days pass that orphans are old, while clients do nothing."""
        self._instance.set_idle_seconds(_DAY_SECONDS / _PARTS_OF_DAY)
        with self._actors.resting():
            for _ in range((self._actors.orphan_age_days + 1) * _PARTS_OF_DAY):
                self._pass_part_of_day()
            # What waits for its next poll does so for as long as before, so it has one meanwhile.
            self._instance.set_idle_seconds(_LAST_PAUSE_SECONDS)
            self._pass_part_of_day()

    def await_collection(self, inspector: Inspector) -> None:
        """Lets the instance collect what is old, and checks that it does in time."""
        self._instance.set_idle_seconds(_HOUR_SECONDS)
        for _ in range(_HOURS_MAX):
            self._world.scheduler.sleep(_HOUR_SECONDS)
            self._actors.restart_dead()
            with self._world.scheduler.exclusively():
                left = inspector.find_orphans()
            if left is None or self._world.errors:
                return
        rule, _, what = (left or "").partition(": ")
        raise Violation(rule, what)

    def _pass_part_of_day(self) -> None:
        self._world.scheduler.sleep(_DAY_SECONDS / _PARTS_OF_DAY)
        self._actors.restart_dead()
