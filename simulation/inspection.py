"""Looks at the instance while all processes stand still, and applies the checks."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from simulation.checks import systems
from simulation.checks.checker import Checker
from simulation.checks.look import Look
from simulation.checks.settled import check_orphans, check_settled
from simulation.checks.takeovers import Takeovers, observed_holds
from simulation.checks.violation import Violation
from simulation.faults import JUMPED
from simulation.instances import SimulatedInstance
from simulation.model.batches import observed_batches
from simulation.model.journal import Journal
from simulation.model.observer import Observer, observed_trims
from simulation.world import World
from sleeper.tables import TableId

# Files of different compaction strategies and of jobs that were repeated.
_FILES_PER_LEAF_MAX = 12


class _StillObserver(Observer):
    """Reads logs while no other process runs."""

    world: World
    source: SimulatedInstance
    _failures = 0

    def reopen(self) -> None:
        """Opens the instance again if its machine has started again."""
        if self.source.failures != self._failures:
            self._failures = self.source.failures
            self.instance = self.source.open_to_check()

    def read_before_trim(self, table_id: TableId) -> None:
        """Reads the log that the caller is about to trim."""
        with self.world.scheduler.exclusively():
            self.reopen()
            super().read_before_trim(table_id)


class Inspector:
    """The checks of one history, and what they need to remember."""

    def __init__(
        self, world: World, instance: SimulatedInstance, journal: Journal, random: Random
    ) -> None:
        self._observer = _StillObserver(instance.open_to_check(), journal)
        self._observer.world, self._observer.source = world, instance
        self._random = random
        self._world = world
        self._takeovers = Takeovers(world)
        self._checker = Checker(self._observer, random)
        self._checked: set[str] = set()

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Reads logs in the block before they are trimmed, and notes what processes do."""
        with (
            observed_trims(self._observer),
            observed_batches(self._observer.journal),
            observed_holds(self._takeovers),
        ):
            yield

    def check_step(self) -> None:
        """Applies the rules that hold at any time."""
        self._takeovers.check()
        self._observer.reopen()
        self._checker.check_step()
        self._check_systems(is_end=False)

    def check_end(self) -> None:
        """Applies all rules to a settled instance."""
        self._observer.reopen()
        self._checker.check_all()
        self._check_systems(is_end=True)

    def _check_systems(self, is_end: bool) -> None:
        look = Look(self._observer, self._random, is_end, self.has_right_clocks, self._checked)
        systems.check_systems(look)

    def find_work(self) -> str | None:
        """Returns what work is left, None if none."""
        self._observer.reopen()
        try:
            check_settled(self._observer, _FILES_PER_LEAF_MAX, are_orphans_old=False)
        except Violation as error:
            return str(error)
        return ", ".join(systems.describe_work(self._observer.instance)) or None

    def find_orphans(self) -> str | None:
        """Returns which objects of killed runs are left, None if none."""
        self._observer.reopen()
        try:
            for model in self._observer.refresh():
                name = self._observer.names[model.id]
                check_orphans(self._observer.instance.table(name))
        except Violation as error:
            return str(error)
        return None

    def check_aged(self) -> None:
        """Checks that every table still has its rows, when days have passed."""
        self._observer.reopen()
        self._checker.check_all()

    @property
    def has_right_clocks(self) -> bool:
        """Whether no clock of the history was ever wrong."""
        return not any(kind == JUMPED for kind, *_ in self._world.faults.counts)
