"""The checks of all tables: those that read no rows after each step, the others now and then.

Reading rows costs more than most operations, so a history of a few hundred steps checks the rows of
one random table at a time, and those of every table at its end.
"""

from random import Random

from simulation.checks.derived import check_derived
from simulation.checks.log import check_answers, check_log, check_submissions
from simulation.checks.reads import check_reads
from simulation.checks.replay import Replica
from simulation.checks.retention import check_retention
from simulation.checks.rows import (
    check_lookups,
    check_rows,
    choose_versions,
    read_by_query,
    read_by_sql,
)
from simulation.checks.runs import (
    check_batches,
    check_run_ages,
    check_trimmed,
    collection_delay_ms,
)
from simulation.checks.state import check_held, check_state
from simulation.model.fold import TableModel
from simulation.model.observer import Observer
from sleeper.garbage_collection.collection import find_retention
from sleeper.instance import OpenTable
from sleeper.tables import TableId

_NEWEST_PROBABILITY = 0.1
_VERSIONS_PROBABILITY = 0.04


class Checker:
    """Checks the tables of an observer against its models. Choices are those of `random`."""

    def __init__(self, observer: Observer, random: Random) -> None:
        self._observer, self._random = observer, random
        self._replicas: dict[TableId, Replica] = {}
        self._checked: dict[TableId, int] = {}

    def check_step(self) -> None:
        """Checks the tables that have changed, and the rows of a few of them."""
        models = self._observer.refresh()
        changed = [each for each in models if self._checked.get(each.id) != each.number]
        for model in models:
            check_reads(model, self._observer.journal)
            check_derived(model, self._observer)
            self._check_held(model)
        for model in changed:
            self.check_table(model)
            self._checked[model.id] = model.number
            if self._random.random() < _NEWEST_PROBABILITY:
                self.check_newest(model)
        if models and self._random.random() < _VERSIONS_PROBABILITY:
            self.check_versions(self._random.choice(models))

    def _check_held(self, model: TableModel) -> None:
        """Checks the holds of the open readers of a table, which expire without a change."""
        reads = [e for e in self._observer.journal.held_reads if e.table_id == model.id]
        if reads:
            check_held(self._open(model), reads, self._observer.instance.clock())

    def check_all(self) -> None:
        """Checks everything of every table."""
        for model in self._observer.refresh():
            self.check_table(model)
            self.check_versions(model)

    def check_table(self, model: TableModel) -> None:
        """Checks the log and the state of a table, of which no rows are read."""
        journal = self._observer.journal
        check_log(model)
        check_submissions(model)
        check_answers(model, journal)
        check_batches(model, journal)
        table = self._open(model)
        check_state(table, model, journal.pins.values(), journal.released)
        with table.state.reading() as state:
            check_run_ages(model, state.orphan_age_ms)
        check_trimmed(table, model)
        check_retention(model, find_retention(table.properties()))

    def check_newest(self, model: TableModel) -> None:
        """Checks the rows of the newest version."""
        if model.is_readable(model.number):
            name = self._observer.names[model.id]
            check_rows(self._observer.instance, name, model, [model.number], read_by_query)

    def check_versions(self, model: TableModel) -> None:
        """Checks the rows of several versions in several ways, and the replay of the log."""
        instance, name = self._observer.instance, self._observer.names[model.id]
        store = instance.tables.state(model.id)
        if model.id not in self._replicas:
            delay_ms = collection_delay_ms(self._open(model))
            self._replicas[model.id] = Replica(model, store, delay_ms)
        self._replicas[model.id].check(model, store)
        versions = choose_versions(model, self._random)
        check_rows(instance, name, model, versions, read_by_query)
        for version in versions[-1:]:
            check_rows(instance, name, model, [version], read_by_sql)
            check_lookups(instance, name, model, version, self._random)

    def _open(self, model: TableModel) -> OpenTable:
        return self._observer.instance.table(self._observer.names[model.id])
