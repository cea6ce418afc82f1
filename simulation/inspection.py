"""Looks at the instance while all processes stand still, and applies the checks."""

from contextlib import suppress
from random import Random

from simulation.calls import Call
from simulation.checks import systems
from simulation.checks.log import check_answers, check_log, check_submissions
from simulation.checks.look import Look
from simulation.checks.replay import Replica
from simulation.checks.rows import (
    check_lookups,
    check_rows,
    choose_versions,
    read_by_query,
    read_by_sql,
)
from simulation.checks.state import check_state
from simulation.local.instance import LocalInstance
from simulation.model.fold import TableModel
from simulation.model.journal import Journal
from simulation.model.observer import Observer
from sleeper.errors import NotFoundError, StateMovedOnError
from sleeper.instance import OpenTable
from sleeper.tables import TableId

_ROW_CHECK_PROBABILITY = 0.3


class Inspector:
    """The checks of one history, and what they need to remember."""

    def __init__(self, instance: LocalInstance, journal: Journal, random: Random) -> None:
        self._instance_of = instance
        self._instance = instance.open_to_check()
        self._journal = journal
        self._random = random
        self._observer = Observer(self._instance, journal)
        self._replicas: dict[str, Replica] = {}

    def on_call(self, call: Call) -> None:
        """Reads the log before it may be trimmed."""
        if call.operation == "trim":
            with self._instance_of.world.scheduler.exclusively():
                self._observer.refresh()

    def check_step(self) -> None:
        """Applies the rules that hold at any time."""
        for model in self._observer.refresh():
            self._check_table(model, self._random.random() < _ROW_CHECK_PROBABILITY)
        systems.check_systems(Look(self._observer, self._random))

    def check_end(self) -> None:
        """Applies all rules to a settled instance."""
        for model in self._observer.refresh():
            self._check_table(model, True)
        systems.check_systems(Look(self._observer, self._random, is_end=True))

    def is_settled(self) -> bool:
        """Returns whether no work is left."""
        return not self.describe_work()

    def describe_work(self) -> str:
        """Returns what work is left, empty if none."""
        jobs = self._instance.jobs
        counts = {name.value: jobs.queue(name).counts().unfinished for name in jobs.queues}
        left = [f"{count} messages of {name}" for name, count in counts.items() if count]
        return ", ".join([*left, *systems.describe_work(self._instance)])

    def _check_table(self, model: TableModel, with_rows: bool) -> None:
        name = self._observer.names[TableId(model.id)]
        check_log(model)
        check_submissions(model)
        check_answers(model, self._journal)
        with suppress(NotFoundError, StateMovedOnError):
            table = self._instance.table(name)
            self._check_state(table, model)
            if with_rows:
                self._check_rows(name, model)

    def _check_state(self, table: OpenTable, model: TableModel) -> None:
        check_state(table, model)
        replica = self._replicas.get(model.id)
        if replica is None:
            replica = self._replicas[model.id] = Replica(model, table.state)
        replica.check(model, table.state)

    def _check_rows(self, name: str, model: TableModel) -> None:
        versions = choose_versions(model, self._random)
        read = self._random.choice((read_by_query, read_by_sql))
        check_rows(self._instance, name, model, versions, read)
        if versions:
            check_lookups(self._instance, name, model, versions[-1], self._random)
