"""The reports on all tables, one table, its state and its data files."""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from sleeper.errors import SleeperError
from sleeper.files import DataFile, FileReference
from sleeper.partitions.json import key_value_to_json
from sleeper.properties.table import NAME, ONLINE, SCHEMA, TABLE_ID
from sleeper.properties.values import TableProperties
from sleeper.reports.output import (
    Column,
    ColumnKind,
    Listing,
    describe_omission,
    pluralize,
)
from sleeper.reports.properties import PropertiesReport, gather_table_properties
from sleeper.reports.snapshot_versions import SnapshotVersionsReport
from sleeper.schema.model import Key, Schema, type_name
from sleeper.statestore.holds import Hold
from sleeper.statestore.reading.file_queries import Totals
from sleeper.statestore.reading.followers import Follower
from sleeper.statestore.store import StateStore
from sleeper.tables import TableId, TableIndex, TableRef, TableState, list_deleted

logger = logging.getLogger(__name__)

# Other columns and listings of the report on a table have these.
_OMITTED = (NAME.name, TABLE_ID.name, SCHEMA.name, ONLINE.name)


@dataclass(frozen=True, slots=True)
class ReportedTable:
    """A table; `totals` is None if it is being deleted or its state is unreadable.

    `absence` is why a snapshot table has no version to read. `export_lag` is the largest lag of an
    export, None if it has none.
    """

    table: TableRef
    totals: Totals | None = None
    is_unreadable: bool = False
    absence: str | None = None
    export_lag: int | None = None

    @property
    def state(self) -> str:
        return "unreadable" if self.is_unreadable else self.table.state.value

    def read_total(self, name: str) -> int | None:
        """Returns a number of the totals."""
        number: int | None = getattr(self.totals, name, None)
        return number


_NAME_COLUMNS = (
    Column("name", "Table", value=lambda each: each.table.name),
    Column("id", "Id", value=lambda each: each.table.id),
    Column("online", "Online", value=lambda each: each.table.online),
)
_SIZE_COLUMNS = (
    Column("rows", "Rows", ColumnKind.COUNT, lambda each: each.read_total("rows")),
    Column("files", "Files", ColumnKind.COUNT, lambda each: each.read_total("files")),
    Column("bytes", "Bytes", ColumnKind.BYTES, lambda each: each.read_total("bytes")),
)
_PARTITIONS = Column(
    "partitions", "Partitions", ColumnKind.COUNT, lambda each: each.read_total("partitions")
)
_EXPORT_LAG = Column("export_lag", "Export lag", ColumnKind.COUNT, lambda each: each.export_lag)
_LEAVES = Column("leaves", "Leaves", ColumnKind.COUNT, lambda each: each.read_total("leaves"))


def list_tables(
    index: TableIndex,
    table_id: TableId | None = None,
    limit: int | None = None,
    read_table: Callable[[TableRef], ReportedTable] | None = None,
    offset: int = 0,
) -> Listing:
    """Lists active tables, then unfinished clones, then those whose deletion is final.

    With `table_id`, only that table. `offset` tables are left out.

    `read_table` reads an active table. Logs a table whose state is lost, damaged or unavailable,
    and continues with the others.
    """
    selected = [t for t in select_tables(index) if table_id is None or t.id == table_id][offset:]
    shown = []
    for table in selected[:limit]:
        reported = ReportedTable(table)
        if read_table is not None and table.state is TableState.ACTIVE:
            try:
                reported = read_table(table)
            except SleeperError as error:
                logger.warning("could not read table %s: %s", table.name, error)
                reported = ReportedTable(table, is_unreadable=True)
        shown.append(reported)
    return describe_tables(shown, len(selected))


def select_tables(index: TableIndex) -> Sequence[TableRef]:
    """Returns the tables of the report on all tables, in its order."""
    states = (TableState.ACTIVE, TableState.CREATING, TableState.DELETING)
    return [t for state in states for t in index.list(state) if t.deleted_ms is None]


def list_deleted_tables(index: TableIndex, delay_ms: int) -> Listing:
    """Lists deleted tables that can be brought back, with the time until when."""
    tables = list_deleted(index)
    columns = (
        Column("name", "Table"),
        Column("id", "Id"),
        Column("deleted", "Deleted", ColumnKind.TIME, lambda table: table.deleted_ms),
        Column("kept_until", "Kept until", ColumnKind.TIME, lambda t: t.deleted_ms + delay_ms),
    )
    return Listing.describe(
        "deleted-tables", pluralize(len(tables), "deleted table"), columns, tables
    )


def describe_tables(tables: Sequence[ReportedTable], total: int) -> Listing:
    """Describes tables, of `total` that exist."""
    states = [each.table.state for each in tables]
    parts = [pluralize(states.count(TableState.ACTIVE), "table")]
    for state, doing in ((TableState.CREATING, "created"), (TableState.DELETING, "deleted")):
        if state in states:
            parts.append(f"{states.count(state):,} being {doing}")
    omission = describe_omission(total, len(tables), "table")
    notes = [f"{each.table.name}: {each.absence}" for each in tables if each.absence]
    return Listing.describe(
        "tables",
        ", ".join(parts),
        (*_NAME_COLUMNS, Column("state", "State"), *_SIZE_COLUMNS, _LEAVES, _EXPORT_LAG),
        tables,
        "; ".join([*notes, *([omission] if omission else [])]) or None,
    )


@dataclass(frozen=True, slots=True)
class TableReport:
    """A table at its newest version, with the properties that are set.

    `versions` are those of a snapshot table, and `more` the listings of systems.
    """

    table: TableRef
    version: int
    schema: Schema
    totals: Totals
    properties: PropertiesReport
    versions: SnapshotVersionsReport | None = None
    more: Sequence[Listing] = ()

    def listings(self) -> tuple[Listing, ...]:
        """Returns listings of the table, its fields and properties, and those of systems."""
        version = Column("version", "Transaction", ColumnKind.COUNT, lambda _: self.version)
        fields = [
            *(("row key", field) for field in self.schema.row_keys),
            *(("sort key", field) for field in self.schema.sort_keys),
            *(("value", field) for field in self.schema.values),
        ]
        return (
            Listing.describe(
                "table",
                f"table {self.table.name}",
                (*_NAME_COLUMNS, version, *_SIZE_COLUMNS, _PARTITIONS, _LEAVES),
                [ReportedTable(self.table, self.totals)],
                None if self.versions is None else self.versions.describe_newest(),
            ),
            Listing.describe("schema", pluralize(len(fields), "field"), _FIELD_COLUMNS, fields),
            self.properties.listing(),
            *self.more,
        )


_FIELD_COLUMNS = (
    Column("field", "Field", value=lambda each: each[1].name),
    Column("role", "Role", value=lambda each: each[0]),
    Column("type", "Type", value=lambda each: type_name(each[1].type)),
    Column("nullable", "Nullable", value=lambda each: each[1].nullable),
)


def gather_table(
    table: TableRef,
    store: StateStore,
    properties: TableProperties,
    versions: SnapshotVersionsReport | None = None,
    more: Sequence[Listing] = (),
) -> TableReport:
    """Reads a table at its newest version. `versions` are those of a snapshot table."""
    with store.reading() as state:
        return TableReport(
            table,
            state.number,
            state.schema,
            state.files.totals(),
            gather_table_properties(properties, table.name).only_set().without(_OMITTED),
            versions,
            more,
        )


_STATE_COLUMNS = (
    Column("table", "Table", value=lambda report: report.table_name),
    Column("number", "Transaction", ColumnKind.COUNT),
    Column("horizon", "Horizon", ColumnKind.COUNT),
    # After a split, a reference has an estimate of its rows.
    Column("rows", "Rows (estimate)", ColumnKind.COUNT, lambda report: report.totals.rows),
    Column("files", "Files", ColumnKind.COUNT, lambda report: report.totals.files),
    Column("bytes", "Bytes", ColumnKind.BYTES, lambda report: report.totals.bytes),
    Column("partitions", "Partitions", ColumnKind.COUNT, lambda report: report.totals.partitions),
    Column("leaves", "Leaves", ColumnKind.COUNT, lambda report: report.totals.leaves),
    Column("compaction_jobs", "Jobs", ColumnKind.COUNT),
    Column(
        "waiting_for_collection",
        "To collect",
        ColumnKind.COUNT,
        lambda report: report.totals.unreferenced_files,
    ),
    Column("holds", "Holds", ColumnKind.COUNT, lambda report: len(report.holds)),
    Column("followers", "Followers", ColumnKind.COUNT, lambda report: len(report.followers)),
    Column(
        "lag",
        "Largest lag",
        ColumnKind.COUNT,
        lambda report: max((f.lag for f in report.followers), default=None),
    ),
    Column("snapshots", "Snapshots"),
)
HOLD_COLUMNS = (
    Column("hold", "Hold", value=lambda hold: hold.id),
    Column("owner", "Owner"),
    Column("version", "Transaction", ColumnKind.COUNT),
    Column("keeps", "Keeps", value=lambda hold: "all since" if hold.is_floor else "one"),
    Column("expires", "Expires", ColumnKind.TIME, lambda hold: hold.expiry_ms),
)
FOLLOWER_COLUMNS = (
    Column("follower", "Follower", value=lambda follower: follower.name),
    Column("start", "Start", ColumnKind.COUNT),
    Column("position", "Position", ColumnKind.COUNT),
    Column("lag", "Lag", ColumnKind.COUNT),
    Column("lost", "Lost", ColumnKind.COUNT),
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
        summary = f"table {self.table_name} at transaction {self.number:,}"
        return Listing.describe("state", summary, _STATE_COLUMNS, [self])

    def holds_listing(self) -> Listing:
        """Returns a row per hold, oldest version first."""
        summary = f"table {self.table_name}: {pluralize(len(self.holds), 'hold')}"
        return Listing.describe("holds", summary, HOLD_COLUMNS, self.holds)

    def followers_listing(self) -> Listing:
        """Returns a row per follower."""
        summary = f"table {self.table_name}: {pluralize(len(self.followers), 'follower')}"
        return Listing.describe("followers", summary, FOLLOWER_COLUMNS, self.followers)


def gather_state(store: StateStore, table_name: str) -> StateReport:
    """Reads the newest version of the state, the followers and the snapshots."""
    followers, snapshots, holds = store.followers(), store.snapshots(), store.holds.all()
    with store.reading() as state:
        return StateReport(
            table_name,
            state.number,
            state.horizon,
            state.files.totals(),
            sum(1 for _ in state.jobs.assigned()),
            tuple(holds),
            tuple(followers),
            tuple(s.number for s in snapshots),
        )


def _file_columns(schema: Schema) -> tuple[Column, ...]:
    def key(values: Key) -> list[int | str | bool]:
        fields = zip(schema.row_keys, values, strict=True)
        return [key_value_to_json(field, value) for field, value in fields]

    return (
        Column("file", "File", ColumnKind.PATH, lambda each: each[0].path),
        Column("partitions", "Partitions", value=lambda each: [r.partition_id for r in each[1]]),
        Column("rows", "Rows", ColumnKind.COUNT, lambda each: each[0].rows),
        Column("bytes", "Bytes", ColumnKind.BYTES, lambda each: each[0].bytes),
        Column("smallest_key", "Smallest key", value=lambda each: key(each[0].smallest_key)),
        Column("largest_key", "Largest key", value=lambda each: key(each[0].largest_key)),
        Column("smallest_number", "From", ColumnKind.COUNT, lambda each: each[0].smallest_number),
        Column("largest_number", "To", ColumnKind.COUNT, lambda each: each[0].largest_number),
        Column(
            "jobs",
            "Compaction job",
            value=lambda each: sorted({r.job_id for r in each[1] if r.job_id}),
        ),
    )


def list_files(store: StateStore, table_name: str, limit: int, offset: int = 0) -> Listing:
    """Lists files of the newest version, oldest first, up to `limit` after an offset."""
    with store.reading() as state:
        files = list(islice(state.files.all(), offset, offset + limit))
        references: defaultdict[str, list[FileReference]] = defaultdict(list)
        for reference in state.files.file_references([f.path for f in files]):
            references[reference.path].append(reference)
        total, schema = state.files.totals().files, state.schema
    return describe_files(table_name, schema, [(f, references[f.path]) for f in files], total)


def describe_files(
    table_name: str,
    schema: Schema,
    files: Sequence[tuple[DataFile, Sequence[FileReference]]],
    total: int,
) -> Listing:
    """Describes files with the references to them, of `total` files of the table.

    `From` and `To` are the transactions that wrote a file's rows.
    """
    return Listing.describe(
        "files",
        f"table {table_name}: {pluralize(total, 'file')}",
        (Column("table", "Table", value=lambda _: table_name), *_file_columns(schema)),
        files,
        describe_omission(total, len(files), "file"),
    )
