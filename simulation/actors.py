"""The processes of a history: clients that run random operations, and the instance's own.

A *step* is one operation of a client. Its choices come from the seed and its name alone, so other
steps do not change if one is left out.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random

from simulation.instances import SimulatedInstance
from simulation.model.journal import Journal
from simulation.plan import Plan
from simulation.scheduling.scheduler import Process, Thread
from simulation.workload.client import Catalogue, Client
from simulation.workload.dead_letters import solve_dead_letters
from simulation.workload.mixture import mix_operations
from simulation.workload.registry import (
    Operation,
    choose_operation,
    explains_none,
    run_operation,
)
from simulation.workload.system_operations import OPERATIONS
from simulation.world import World
from sleeper.errors import DataError, SleeperError

logger = logging.getLogger(__name__)

_TABLES_MAX = (1, 1, 2, 4)
_PAUSES_SECONDS = (0.0, 1.0, 30.0, 600.0)
_RESTART_SECONDS = (0.0, 5.0, 300.0)
# Polls are most of the calls, so processes poll a few times in the pause of a client.
_POLLS_PER_PAUSE = 4
_IDLE_SECONDS_MIN = 1.0
# Visibility timeouts and leases, which outlast the attempts.
_COMPACTION_SECONDS = (("20", "70"), ("60", "300"), ("900", "3600"))
_SETTLING_IDLE_SECONDS = 120.0
_ORPHAN_AGES_DAYS = (2, 2, 14)
_RESTING_SECONDS = 3_600.0
_REDRIVE_SECONDS = 500.0
# How often a message may be received. On AWS commits need many.
_RECEIVES = ("1", "3", "1000", "1000")


@dataclass(eq=False)
class _Actor:
    """A process that is started again when it ended, until it has done its work."""

    name: str
    run: Callable[[], None]
    process: Process | None = None
    main: Thread | None = None
    is_done: bool = False
    restart_at: float | None = 0.0


@dataclass
class Actors:
    """All processes of a history. `done` counts operations, `steps` are those that ran."""

    plan: Plan
    world: World
    instance: SimulatedInstance
    journal: Journal = field(default_factory=Journal)
    catalogue: Catalogue = field(default_factory=Catalogue)
    done: Counter[str] = field(default_factory=Counter)
    steps: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = Random(f"{self.plan.seed} actors")
        self._clients: list[_Actor] = []
        self._background: list[_Actor] = []
        self._next_steps: Counter[str] = Counter()
        self._restart_seconds = self._random.choice(_RESTART_SECONDS)
        self._pause_seconds = self._random.choice(_PAUSES_SECONDS)
        self.catalogue.tables_max = self._random.choice(_TABLES_MAX)
        self.orphan_age_days = self._random.choice(_ORPHAN_AGES_DAYS)
        self._is_resting = False
        self.explains_error: Callable[[str], bool] = explains_none

    def instance_properties(self) -> dict[str, str]:
        """Returns random properties of the instance."""
        random = self._random
        visibility_seconds, lease_seconds = random.choice(_COMPACTION_SECONDS)
        receives = random.choice(_RECEIVES) if self.plan.world == "local" else _RECEIVES[-1]
        return {
            "sleeper.queue.receives.max": receives,
            "sleeper.compaction.job.max.retries": random.choice(("1", "3")),
            "sleeper.compaction.queue.visibility.timeout.seconds": visibility_seconds,
            "sleeper.ingest.queue.visibility.timeout.seconds": random.choice(("60", "900")),
            "sleeper.ingest.keepalive.period.seconds": "20",
            "sleeper.compaction.lease.seconds": lease_seconds,
            "sleeper.query.hold.seconds": random.choice(("60", "60", "3600")),
            "sleeper.orphan.age.days": str(self.orphan_age_days),
            "sleeper.table.deletion.delay.hours": random.choice(("0", "24")),
            "sleeper.gc.period.minutes": random.choice(("1", "15")),
            "sleeper.partition.splitting.period.minutes": random.choice(("1", "30")),
            "sleeper.snapshot.period.minutes": random.choice(("1", "60")),
            "sleeper.snapshot.transactions.min": random.choice(("5", "50")),
            "sleeper.orphan.period.hours": random.choice(("1", "24")),
            "sleeper.engine.threads": "1",
            "sleeper.query.checksums.verified": str(self.world.faults.profile.has_damage).lower(),
        }

    def start(self, clients: int, steps: int) -> None:
        """Starts clients that run so many steps in all, and the background work."""
        self._poll_as_usual()
        for number in range(clients):
            name, count = f"client{number + 1}", -(-steps // clients)
            self._clients.append(_Actor(name, self._client(name, count)))
        for each in self.instance.background(self._random):
            self._background.append(_Actor(each.name, each.run))
        self._background.append(_Actor("operator", self._redrive))
        self.restart_dead()

    def restart_dead(self) -> None:
        """Starts the actors whose process ended, after a pause."""
        now = self.world.scheduler.now
        for actor in (*self._clients, *self._background):
            if actor.is_done or (actor.main is not None and not actor.main.is_done):
                continue
            if actor.restart_at is None:
                actor.restart_at = now + self._restart_seconds * self._random.random()
            if now >= actor.restart_at:
                actor.restart_at = None
                self._start(actor)

    def keep_all_alive(self) -> None:
        """Starts at once from now on what ended."""
        self._restart_seconds = 0.0
        self.instance.set_idle_seconds(_SETTLING_IDLE_SECONDS)

    def _redrive(self) -> None:
        """Returns what has failed too often to its queue, when the faults that it met are over."""
        instance = self.instance.open()
        while True:
            if not self.world.faults.is_on:
                solve_dead_letters(instance, self.journal)
            pause = _RESTING_SECONDS if self._is_resting else _REDRIVE_SECONDS
            self.world.scheduler.sleep(pause)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Lets clients begin no step in the block. Processes poll as usual after it."""
        self._is_resting = True
        try:
            yield
        finally:
            self._is_resting = False
            self._poll_as_usual()

    def _poll_as_usual(self) -> None:
        idle_seconds = self._pause_seconds / _POLLS_PER_PAUSE
        self.instance.set_idle_seconds(max(_IDLE_SECONDS_MIN, idle_seconds))

    def are_clients_done(self) -> bool:
        """Returns whether the clients have run all their steps."""
        return all(actor.is_done for actor in self._clients)

    def _start(self, actor: _Actor) -> None:
        def run() -> None:
            try:
                actor.run()
            except SleeperError as error:
                if isinstance(error, DataError) and not self.explains_error(str(error)):
                    raise
                thread = self.world.scheduler.current
                self.world.note(thread, f"ended: {type(error).__name__}: {error}")

        name = actor.name.rstrip("0123456789")
        actor.process, actor.main = self.instance.processes.start(name, run)

    def _client(self, name: str, count: int) -> Callable[[], None]:
        operations = mix_operations(
            OPERATIONS.values(), Random(f"{self.plan.seed} mixture"), self.plan.focus
        )

        def run() -> None:
            instance = self.instance.open()
            client = Client(
                instance,
                Random(),
                self.journal,
                self.catalogue,
                self.instance,
                partial(self.world.count_met, self.world.scheduler.current.process),
            )
            while self._next_steps[name] < count:
                if self._is_resting:
                    self.world.scheduler.sleep(_RESTING_SECONDS)
                    continue
                step = f"{name}.{self._next_steps[name]}"
                self._next_steps[name] += 1
                if self.plan.has_step(step):
                    self._run_step(step, client, operations)
            client.close()
            instance.close()
            self._actor_of(name).is_done = True

        return run

    def _run_step(self, step: str, client: Client, operations: Sequence[Operation]) -> None:
        client.random.seed(f"{self.plan.seed} {step}")
        chosen = choose_operation(client, operations)
        scheduler = self.world.scheduler
        self.steps.append(step)
        self.world.note(scheduler.current, f"step {step}: {chosen.name}")
        with self.world.operating(chosen.name, step):
            outcome = run_operation(client, chosen, self.explains_error)
        self.world.note(scheduler.current, f"step {step}: {outcome}")
        self.done[chosen.name] += 1
        scheduler.sleep(self._pause_seconds * client.random.random())

    def _actor_of(self, name: str) -> _Actor:
        return next(actor for actor in self._clients if actor.name == name)
