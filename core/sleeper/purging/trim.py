"""The last step of a purge: new snapshots, a trimmed log, a rewritten state file."""

from dataclasses import dataclass, field

from sleeper.garbage_collection.collection import find_claims, find_retention
from sleeper.instance import OpenTable
from sleeper.purging.kept import find_claim
from sleeper.purging.report import ObjectState, PurgedObject

_SNAPSHOTS = 2


def state_name(table: OpenTable) -> str:
    """Returns the path of the table's state."""
    return f"{table.ref.id}/state.db"


@dataclass(slots=True)
class Trim:
    """The step for one table. `deleted` are the objects that it removed."""

    table: OpenTable
    deleted: list[PurgedObject] = field(default_factory=list)
    has_snapshots: bool = False
    is_done: bool = False

    def advance(self) -> list[PurgedObject]:
        """Does what is possible now, and returns what is kept."""
        if self.is_done:
            return []
        store = self.table.state
        with store.reading() as state:
            number, horizon = state.number, state.horizon
        if not self.has_snapshots:
            self._save_snapshots(number)
            self.has_snapshots = True
        claims = find_claims(
            store, self.table.instance.clock(), find_retention(self.table.properties())
        )
        number = store.trim(claims.horizon_max)
        # Purged rows and deletes are in transactions up to the horizon.
        if horizon and not store.is_trimmed(horizon):
            reason, until_ms = find_claim(self.table, horizon + 1)
            name = f"log with transaction {horizon:,}"
            reason = reason or "no two snapshots are valid"
            return [PurgedObject(name, ObjectState.KEPT, horizon, None, reason, until_ms)]
        background = self.table.instance.background
        is_clean = store.vacuum() and (background is None or background.vacuum())
        name = state_name(self.table)
        if not is_clean:
            return [PurgedObject(name, ObjectState.KEPT, None, None, "another process reads it")]
        self.deleted += [
            PurgedObject(f"log up to transaction {number:,}", ObjectState.GONE, number),
            PurgedObject(f"{name}: deleted rows", ObjectState.GONE, number),
        ]
        self.is_done = True
        return []

    def _save_snapshots(self, number: int) -> None:
        """Saves two snapshots, unless there are, because the log is needed from the older on."""
        store = self.table.state
        before = store.snapshots()
        if sum(each.number >= number for each in before) >= _SNAPSHOTS:
            return
        for _ in range(_SNAPSHOTS):
            store.save_snapshot()
        kept = {each.path for each in store.snapshots()}
        self.deleted += [
            PurgedObject(each.path, ObjectState.GONE, each.number)
            for each in before
            if each.path not in kept
        ]
