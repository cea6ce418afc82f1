"""The schedules: operations on each table, and the starts of tasks.

The rule of an operation starts a function that sends a message per table to a FIFO queue, unless
too many rounds wait there already. The queue's function handles a table at a time.
"""

from collections.abc import Callable

from simulation.scale.functions import Source
from simulation.scale.queue import Message
from simulation.scale.rules import ScheduleRule
from simulation.scale.tasks import Fleet
from simulation.scale.timeline import Action
from simulation.scale.work import Work
from simulation.scale.world import Table, World

_OTHER_SECONDS = 0.1
"""A scheduled function without tables that finds nothing to do."""

Operate = Callable[[Table], Work]
"""Does the operation for a cohort, and returns what it adds to that of an idle table."""


class Operations:
    """The operations on tables, each with the times at which its rounds ended."""

    def __init__(self, world: World) -> None:
        self.rounds: dict[str, list[float]] = {}
        self.skipped = 0
        self._world = world
        one, many = world.works["fan_out"], world.works["fan_out_of_many"]
        self._per_table = many.plus(one.scaled(-1)).scaled(1 / 40)

    def add(self, name: str, operate: Operate) -> None:
        """Adds the operation of the queue of that name."""
        world = self._world
        queue = world.queues[name]
        self.rounds[name] = []
        rule = queue.rule.receiver
        assert rule is not None

        def handle(messages: list[Message]) -> tuple[float, Action]:
            (message,) = messages
            table, sent = message.content
            work = world.work(name).scaled(message.weight).plus(operate(table))
            world.ledger.add(rule.name, work.prices)
            return work.seconds(rule.memory_mb), lambda: self._end(name, table, sent)

        Source(world.timeline, world.functions, queue, world.ledger, handle)
        schedule = world.rules.schedules[name.replace("_", "-")]
        world.functions.schedule(
            schedule, lambda: self._fan_out(name, schedule), self._first(schedule)
        )

    def add_others(self, fleets: dict[str, Fleet]) -> None:
        """Adds the starts of tasks, and the schedules that have neither tables nor tasks."""
        world = self._world
        for name, rule in world.rules.schedules.items():
            if name.replace("-", "_") in self.rounds:
                continue
            fleet = fleets.get(name.removeprefix("start-tasks-"))

            def run(rule: ScheduleRule = rule, fleet: Fleet | None = fleet) -> tuple[float, Action]:
                work = world.works["start_tasks"]
                world.ledger.add(rule.function.name, work.prices)
                start = (lambda: None) if fleet is None else fleet.start_needed
                return _OTHER_SECONDS, start

            world.functions.schedule(rule, run, self._first(rule))

    def _first(self, rule: ScheduleRule) -> float:
        return self._world.random.uniform(0, rule.period_seconds)

    def _fan_out(self, name: str, schedule: ScheduleRule) -> tuple[float, Action]:
        world = self._world
        queue, load = world.queues[name], world.load
        waiting = queue.counts().visible
        if waiting >= world.rules.rounds_waiting_max * load.tables:
            self.skipped += 1
            return _OTHER_SECONDS, lambda: None
        work = world.works["fan_out"].plus(self._per_table.scaled(load.tables))
        world.ledger.add(schedule.function.name, work.prices)
        sent = world.timeline.now

        def send() -> None:
            for table in world.tables:
                queue.send((table, sent), table.number, load.cohort)

        return work.seconds(schedule.function.memory_mb), send

    def _end(self, name: str, table: Table, sent: float) -> None:
        if table is self._world.tables[-1]:
            self.rounds[name].append(self._world.timeline.now - sent)
