"""The observer: reads the logs of all tables as they grow, and keeps a model of each table.

Logs are trimmed and tables are deleted, so what was read is kept.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from simulation.checks.violation import Violation
from simulation.model.fold import TableModel
from simulation.model.journal import Journal
from sleeper.errors import DataError, NotFoundError
from sleeper.instance import Instance
from sleeper.statestore.store import StateStore
from sleeper.tables import TableId, TableState

_READABLE = "the log can be read"
_ENTRIES_PER_READ = 1_000


class Observer:
    """The models of an instance's tables. `names` has those of active tables."""

    def __init__(self, instance: Instance, journal: Journal) -> None:
        self.instance, self.journal = instance, journal
        self.models: dict[TableId, TableModel] = {}
        self.names: dict[TableId, str] = {}

    def refresh(self) -> list[TableModel]:
        """Reads what the logs have more, and returns the models of the active tables."""
        refs = self.instance.tables.index.list(TableState.ACTIVE)
        self.names = {ref.id: ref.name for ref in refs}
        for ref in sorted(refs, key=lambda ref: self._first_of(ref.name)):
            model = self.models.get(ref.id) or self._open(ref.id, ref.name)
            if model is not None:
                self.models[ref.id] = model
                self._read(model)
        return [self.models[ref.id] for ref in refs if ref.id in self.models]

    def _first_of(self, name: str) -> tuple[bool, str]:
        """Returns the order of tables: clones after their sources."""
        return name in self.journal.clones, name

    def _open(self, table_id: TableId, name: str) -> TableModel | None:
        """Returns the model of a new table.

        None of a clone whose source was never observed, or not up to its version: it was deleted.
        """
        clone = self.journal.clones.get(name)
        if clone is None:
            return TableModel(table_id, self.journal)
        source = self.models.get(TableId(clone.source_id))
        if source is None or source.number < clone.version:
            return None
        return TableModel.clone(table_id, source, clone.version)

    def _read(self, model: TableModel) -> None:
        try:
            state = self.instance.tables.state(model.id)
        except NotFoundError:
            return  # deleted meanwhile
        while entries := state.read_entries(model.number, _ENTRIES_PER_READ):
            try:
                model.extend(entries)
            except DataError as error:
                raise Violation(_READABLE, str(error)) from error

    def read_before_trim(self, table_id: TableId) -> None:
        """Reads the log of a table, which is about to be trimmed."""
        if table_id not in self.models:
            self.refresh()
        if table_id in self.models:
            self._read(self.models[table_id])


@contextmanager
def observed_trims(observer: Observer) -> Iterator[None]:
    """Lets the observer read each log before any process trims it.

    A purge commits and trims in one operation, so entries would be missed otherwise.
    """
    trim = StateStore.trim

    def observed(store: StateStore, up_to_max: int | None = None) -> int:
        observer.read_before_trim(TableId(store._table_id))
        return trim(store, up_to_max)

    with patch.object(StateStore, "trim", observed):
        yield
