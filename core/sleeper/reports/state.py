"""The reports on a table's state (versions, holds, followers, snapshots) and data files."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import islice

from sleeper.files import DataFile, FileReference
from sleeper.partitions.json import key_value_to_json
from sleeper.reports.output import (
    Column,
    ColumnKind,
    Listing,
    Value,
    describe_omission,
    pluralize,
)
from sleeper.schema.model import Key
from sleeper.statestore.reading.file_queries import Totals
from sleeper.statestore.reading.newest_queries import Follower, Hold
from sleeper.statestore.store import StateStore

_STATE_COLUMNS = (
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
_FILE_COLUMNS = (
    Column("table", "Table"),
    Column("file", "File", ColumnKind.PATH),
    Column("partitions", "Partitions"),
    Column("rows", "Rows", ColumnKind.COUNT),
    Column("bytes", "Bytes", ColumnKind.BYTES),
    Column("smallest_key", "Smallest key"),
    Column("largest_key", "Largest key"),
    Column("smallest_number", "From", ColumnKind.COUNT),
    Column("largest_number", "To", ColumnKind.COUNT),
    Column("jobs", "Compaction job"),
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
        """Returns one row."""
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
        return Listing("state", summary, _STATE_COLUMNS, (row,))

    def holds_listing(self) -> Listing:
        """Returns a row per hold, oldest version first."""
        return Listing(
            name="holds",
            summary=f"table {self.table_name}: {pluralize(len(self.holds), 'hold')}",
            columns=_HOLD_COLUMNS,
            rows=tuple((h.id, h.owner, h.version, h.expiry_ms) for h in self.holds),
        )

    def followers_listing(self) -> Listing:
        """Returns a row per follower."""
        return Listing(
            name="followers",
            summary=f"table {self.table_name}: {pluralize(len(self.followers), 'follower')}",
            columns=_FOLLOWER_COLUMNS,
            rows=tuple((f.name, f.start, f.position, f.lag) for f in self.followers),
        )


def gather_state(store: StateStore, table_name: str) -> StateReport:
    """Reads the newest version of the state, the followers and the snapshots."""
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


@dataclass(frozen=True, slots=True)
class ReportedFile:
    """A data file and the references to it."""

    file: DataFile
    references: tuple[FileReference, ...]


@dataclass(frozen=True, slots=True)
class FilesReport:
    """A table's first files, oldest first, and the total number of files."""

    table_name: str
    files: tuple[ReportedFile, ...]
    total: int

    def listing(self) -> Listing:
        """Returns a row per file; `From` and `To` are the transactions that wrote its rows."""
        return Listing(
            name="files",
            summary=f"table {self.table_name}: {pluralize(self.total, 'file')}",
            columns=_FILE_COLUMNS,
            rows=tuple(self._row(each) for each in self.files),
            note=describe_omission(self.total, len(self.files), "file"),
        )

    def _row(self, reported: ReportedFile) -> tuple[Value, ...]:
        file = reported.file
        return (
            self.table_name,
            file.path,
            tuple(r.partition_id for r in reported.references),
            file.rows,
            file.bytes,
            _format_key(file.smallest_key),
            _format_key(file.largest_key),
            file.smallest_number,
            file.largest_number,
            tuple(sorted({r.job_id for r in reported.references if r.job_id})),
        )


def gather_files(store: StateStore, table_name: str, limit: int) -> FilesReport:
    """Reads files of the newest version, up to `limit`."""
    with store.reading() as state:
        files = list(islice(state.files.all(), limit))
        references: defaultdict[str, list[FileReference]] = defaultdict(list)
        for reference in state.files.references_to([f.path for f in files]):
            references[reference.path].append(reference)
        total = state.files.totals().files
    reported = tuple(ReportedFile(f, tuple(references[f.path])) for f in files)
    return FilesReport(table_name, reported, total)


def _format_key(key: Key) -> tuple[int | str, ...]:
    return tuple(key_value_to_json(value) for value in key)
