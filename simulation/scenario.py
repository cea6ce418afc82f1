"""The run of one seed: a world, its instance, clients and background processes, and the checks.

First the clients work while faults happen, and checks stop the world now and then. Then the faults
end, everything that died is started again, and the instance must settle: queues drain, jobs end,
and each table has exactly the rows that its log tells.
"""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from simulation.actors import Actors
from simulation.ageing import Ageing
from simulation.aws.instance import AwsInstance
from simulation.bugs.catalogue import planted
from simulation.checks.violation import Violation
from simulation.damage import Damage
from simulation.inspection import Inspector
from simulation.instances import SimulatedInstance
from simulation.local.instance import LocalInstance
from simulation.plan import Plan
from simulation.processes import install
from simulation.result import CallCount, FaultCount, FaultName, Result
from simulation.scheduling.scheduler import DeadlockError, Machine, Process
from simulation.systems.receiver import RECEIVERS
from simulation.world import World
from sleeper.errors import DataError, SleeperError

_STEPS = (20, 60, 150)
_CLIENTS = (1, 2, 3)
_CALLS_MAX = 60_000
_VIRTUAL_SECONDS_MAX = 30 * 86_400.0
_SECONDS_BETWEEN_CHECKS = (20.0, 200.0, 2000.0)
# Checks cost more than most calls.
_CALLS_BETWEEN_CHECKS = 100
# Most histories have no rest of days, and others begin it early or late.
_CALLS_BEFORE_REST = (*(3 * (_CALLS_MAX,)), 1_000, 5_000)
_AGEING_PROBABILITY = 0.3
# Heartbeats of weeks with faults would be most of a history.
_REST_DAYS_MAX = 2
_SETTLING_ROUNDS_MAX = 60
_SETTLING_SECONDS = 600.0

_KINDS: dict[str, Callable[[World], SimulatedInstance]] = {
    "local": LocalInstance,
    "aws": AwsInstance,
}

_installed = install(lambda _where: _Current.instance.open())


class _Current:
    """The instance of the history of this process of the system."""

    instance: SimulatedInstance


def run_plan(plan: Plan, trace_file: Path | None = None) -> Result:
    """Runs a plan in this process, which can run no other afterwards."""
    start = time.monotonic()
    world = World.create(plan.seed, plan.only_faults, trace_file, plan.focus)
    scenario = Scenario(plan, world)
    try:
        with planted(plan.bug):
            failure = scenario.run()
    finally:
        scenario.instance.remove()
    return _result(plan, world, scenario, failure, time.monotonic() - start)


class Scenario:
    """The history of one seed."""

    def __init__(self, plan: Plan, world: World) -> None:
        self.world = world
        self.random = Random(f"{plan.seed} scenario")
        self.instance = _Current.instance = _KINDS[plan.world](world)
        _installed.processes = self.instance.processes
        RECEIVERS.attach(world)
        self.plan = plan
        self.actors = Actors(plan, world, self.instance)
        self._ageing = Ageing(world, self.instance, self.actors)
        self._damage = Damage(world, self.instance)
        self.actors.explains_error = self._damage.explains
        self._checked_at = 0

    def run(self) -> str | None:
        """Runs the history. Returns the rule that was broken and how, or None."""
        failures: list[str] = []
        process = Process("world", Machine(), meets_faults=False)
        try:
            self.world.scheduler.run(process, lambda: self._run(failures))
        except DeadlockError as error:
            failures.append(f"progress: {error}")
        failures += [
            f"unexpected error: {thread}: {type(error).__name__}: {error}"
            for thread, error in self.world.errors
        ]
        return self.world.trace.without_folder(failures[0]) if failures else None

    def _run(self, failures: list[str]) -> None:
        try:
            self.instance.create(self.actors.instance_properties())
            inspector = Inspector(self.world, self.instance, self.actors.journal, self.random)
            with inspector.observing():
                clients, steps = self.random.choice(_CLIENTS), self.random.choice(_STEPS)
                self.actors.start(clients, self.plan.size or steps)
                self._work(inspector)
                self.world.faults.is_on = False
                self._damage.repair()
                self.actors.keep_all_alive()
                self._settle(inspector)
                if self.random.random() < _AGEING_PROBABILITY and inspector.has_right_clocks:
                    self._age(inspector)
        except Violation as error:
            failures.append(str(error))
        except SleeperError as error:
            failures.append(f"unexpected error: a check met {type(error).__name__}: {error}")

    def _work(self, inspector: Inspector) -> None:
        seconds = self.random.choice(_SECONDS_BETWEEN_CHECKS)
        calls_before_rest = self.random.choice(_CALLS_BEFORE_REST)
        while not self.actors.are_clients_done() and not self._is_too_long():
            self.world.scheduler.sleep(seconds * self.random.random())
            self.actors.restart_dead()
            if self.world.faults.profile.has_damage:
                self._damage.look()
            if self.world.trace.count > self._checked_at + _CALLS_BETWEEN_CHECKS:
                self._stopped(inspector.check_step)
            if self.world.trace.count > calls_before_rest:
                calls_before_rest = _CALLS_MAX
                if self.actors.orphan_age_days <= _REST_DAYS_MAX:
                    self._ageing.rest()

    def _settle(self, inspector: Inspector) -> None:
        left: str | None = "clients"
        for _ in range(_SETTLING_ROUNDS_MAX):
            self.world.scheduler.sleep(_SETTLING_SECONDS)
            self.actors.restart_dead()
            self._stopped(inspector.check_step)
            if self.world.errors:
                return
            if self.actors.are_clients_done():
                with self.world.scheduler.exclusively():
                    left = inspector.find_work()
                if left is None:
                    break
        else:
            raise Violation("progress", f"work is left: {left}")
        self._checked_at = -1
        self._stopped(inspector.check_end)

    def _age(self, inspector: Inspector) -> None:
        """Lets days pass in a settled instance, which must collect the orphans of killed runs."""
        self._ageing.rest()
        self._ageing.await_collection(inspector)
        self._checked_at = -1
        self._stopped(inspector.check_aged)

    def _stopped(self, check: Callable[[], None]) -> None:
        """Runs a check while all processes stand still, unless nothing has happened since."""
        if not self.world.errors and self.world.trace.count != self._checked_at:
            self._checked_at = self.world.trace.count
            with self.world.scheduler.exclusively():
                try:
                    check()
                except DataError as error:
                    if not self._damage.explains(str(error)):
                        raise
                    self.world.note(self.world.scheduler.current, f"check ended: {error}")

    def _is_too_long(self) -> bool:
        world = self.world
        is_long = world.scheduler.now - world.began_at > _VIRTUAL_SECONDS_MAX
        return is_long or world.trace.count > _CALLS_MAX or bool(world.errors)


def _result(
    plan: Plan, world: World, scenario: Scenario, failure: str | None, seconds: float
) -> Result:
    faults = world.faults
    counts: Counter[tuple[str, str, str]] = faults.counts
    return Result(
        plan.seed,
        failure,
        world.trace.fingerprint,
        sum(faults.calls.values()),
        int(world.scheduler.now - world.began_at),
        int(seconds * 1000),
        dict(sorted(scenario.actors.done.items())),
        tuple(FaultName(*name) for name in faults.names),
        tuple(FaultCount(*key, count) for key, count in sorted(counts.items())),
        tuple(CallCount(*key, count) for key, count in sorted(faults.calls.items())),
        tuple(scenario.actors.steps),
        tuple(world.trace.lines),
    )
