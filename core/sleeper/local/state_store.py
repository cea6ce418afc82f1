"""Opens the state store of a table of a local instance."""

from pathlib import Path

from obstore.store import ObjectStore

from sleeper.clock import Clock, system_clock
from sleeper.errors import UnavailableError
from sleeper.local.transaction_log import SqliteTransactionLog
from sleeper.statestore.database import Database
from sleeper.statestore.snapshots import SnapshotStore
from sleeper.statestore.store import StateStore


def open_state_store(
    path: Path,
    clock: Clock = system_clock,
    objects: ObjectStore | None = None,
    table_id: str = "",
) -> StateStore:
    """Log and state in one SQLite file, made if it is not there, with its folder.

    Snapshots go below `<table id>/snapshots/` of `objects`, if it is given.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"{path.parent}: {error}") from error
    database = Database(path)
    snapshots = SnapshotStore(objects, table_id) if objects is not None else None
    return StateStore(database, SqliteTransactionLog(database), clock, snapshots)
