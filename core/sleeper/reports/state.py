"""The reports on a table's state: versions, holds, followers, snapshots."""

from dataclasses import dataclass

from sleeper.reports.output import Column, ColumnKind, Listing, Value, counted
from sleeper.statestore.reading.collection_queries import Follower, Hold
from sleeper.statestore.reading.file_queries import Totals
from sleeper.statestore.store import StateStore

_COLUMNS = (
    Column("table", "Table"),
    Column("number", "Number", ColumnKind.COUNT),
    Column("horizon", "Horizon", ColumnKind.COUNT),
    Column("rows", "Rows", ColumnKind.COUNT),
    Column("files", "Files", ColumnKind.COUNT),
    Column("bytes", "Bytes", ColumnKind.BYTES),
    Column("partitions", "Partitions", ColumnKind.COUNT),
    Column("leaves", "Leaves", ColumnKind.COUNT),
    Column("compaction_jobs", "Jobs", ColumnKind.COUNT),
    Column("waiting_for_collection", "To collect", ColumnKind.COUNT),
    Column("holds", "Holds", ColumnKind.COUNT),
    Column("followers", "Followers", ColumnKind.COUNT),
    Column("lag", "Largest lag", ColumnKind.COUNT),
    Column("snapshots", "Snapshots"),
)
_HOLD_COLUMNS = (
    Column("hold", "Hold"),
    Column("owner", "Owner"),
    Column("version", "Version", ColumnKind.COUNT),
    Column("expires", "Expires", ColumnKind.TIME),
)
_FOLLOWER_COLUMNS = (
    Column("follower", "Follower"),
    Column("start", "Start", ColumnKind.COUNT),
    Column("position", "Position", ColumnKind.COUNT),
    Column("lag", "Lag", ColumnKind.COUNT),
)


@dataclass(frozen=True, slots=True)
class StateReport:
    """A table's state at its newest transaction. `snapshots` are numbers, newest first."""

    table_name: str
    number: int
    horizon: int
    totals: Totals
    compaction_jobs: int
    holds: tuple[Hold, ...]
    followers: tuple[Follower, ...]
    snapshots: tuple[int, ...]

    def listing(self) -> Listing:
        """One row."""
        totals = self.totals
        row: tuple[Value, ...] = (
            self.table_name,
            self.number,
            self.horizon,
            totals.rows,
            totals.files,
            totals.bytes,
            totals.partitions,
            totals.leaves,
            self.compaction_jobs,
            totals.unreferenced_files,
            len(self.holds),
            len(self.followers),
            max((f.lag for f in self.followers), default=None),
            self.snapshots,
        )
        summary = f"table {self.table_name} at transaction {self.number:,}"
        return Listing("state", summary, _COLUMNS, (row,))

    def holds_listing(self) -> Listing:
        """A row for each hold, oldest version first."""
        return Listing(
            name="holds",
            summary=f"table {self.table_name}: {counted(len(self.holds), 'hold')}",
            columns=_HOLD_COLUMNS,
            rows=tuple((h.id, h.owner, h.version, h.expiry_ms) for h in self.holds),
        )

    def followers_listing(self) -> Listing:
        """A row for each follower."""
        return Listing(
            name="followers",
            summary=f"table {self.table_name}: {counted(len(self.followers), 'follower')}",
            columns=_FOLLOWER_COLUMNS,
            rows=tuple((f.name, f.start, f.position, f.lag) for f in self.followers),
        )


def gather_state(store: StateStore, table_name: str) -> StateReport:
    """Reads the newest version of the table's state, its log's cursors and its snapshots."""
    followers, snapshots = store.followers(), store.snapshots()
    with store.reading() as state:
        return StateReport(
            table_name,
            state.number,
            state.horizon,
            state.files.totals(),
            sum(1 for _ in state.jobs.assigned()),
            tuple(state.collection.holds()),
            tuple(followers),
            tuple(s.number for s in snapshots),
        )
