"""The rule that a table's state is the fold of its whole log.

A *replica* folds every entry that the observer has seen, from the first one on, into a database in
memory. The state of the instance may have come from a snapshot, a copy and the log's tail.
"""

import sqlite3
from typing import Any

from simulation.checks.runs import check_delays
from simulation.checks.violation import require
from simulation.model.fold import TableModel
from sleeper.statestore.entry_commit import apply_entry
from sleeper.statestore.fold import Fold
from sleeper.statestore.fold_tables import LOG_TABLE_PREFIX, create_tables
from sleeper.statestore.store import StateStore

_REPLAY = "the state is the fold of the log"
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE ? ORDER BY name"


class Replica:
    """A fold of the entries of one table. That of a clone begins as a copy of its state."""

    def __init__(self, model: TableModel, store: StateStore, delay_ms: int = 0) -> None:
        self._delay_ms = delay_ms
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._seen = 0
        if model.first:
            with store.database.reading() as connection:
                connection.backup(self._connection)
        else:
            create_tables(self._connection)

    def check(self, model: TableModel, store: StateStore) -> None:
        """Folds the entries that are new, and compares the tables with those of the state."""
        fold = Fold(self._connection)
        for entry in model.entries[self._seen :]:
            # A copy may be of a later state than the observer has read.
            if entry.first_number > fold.number:
                check_delays(fold, entry, self._delay_ms)
                apply_entry(fold, entry)
        self._seen = len(model.entries)
        if store.newest_number() != model.number or fold.number != model.number:
            return  # committed since the observer read the log
        with store.database.reading() as connection:
            actual = _dump(connection)
        expected = _dump(self._connection)
        for name, rows in expected.items():
            require(
                actual.get(name) == rows,
                _REPLAY,
                f"table {name} differs at {model.number}",
                table=model.id,
                replayed=[each for each in rows if each not in actual.get(name, [])][:5],
                stored=[each for each in actual.get(name, []) if each not in rows][:5],
            )


def _dump(connection: sqlite3.Connection) -> dict[str, list[Any]]:
    names = connection.execute(_TABLES, (f"{LOG_TABLE_PREFIX}%",)).fetchall()
    return {
        name: connection.execute(f'SELECT * FROM "{name}" ORDER BY 1, 2').fetchall()
        for (name,) in names
    }
