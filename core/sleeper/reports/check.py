"""The report on a check of a table's data files against its state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sleeper.datafiles.verification import ExpectedFile, FileFault, verify_file
from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.files import DataFile
from sleeper.instance import Instance, OpenTable
from sleeper.partitions.partition import Partition
from sleeper.properties.instance import QUERY_HOLD_SECONDS
from sleeper.query.hold import VersionHold
from sleeper.reports.output import Column, ColumnKind, Listing, pluralize
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.store import StateStore

_COLUMNS = (
    Column("path", "File", ColumnKind.PATH),
    Column("row_group", "Row group", ColumnKind.COUNT),
    Column("fault", "Fault"),
)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The files and rows checked at a version of a table, and their faults."""

    table: str
    version: int
    files: int
    rows: int
    findings: Sequence[FileFault]

    def listing(self) -> Listing:
        """Returns a row per fault."""
        verdict = "no faults" if not self.findings else pluralize(len(self.findings), "fault")
        return Listing.describe(
            "check",
            f"table {self.table} at version {self.version:,}: {pluralize(self.files, 'file')}, "
            f"{pluralize(self.rows, 'row')} read: {verdict}",
            _COLUMNS,
            self.findings,
        )


def check_table(
    instance: Instance,
    name: str,
    on_rows: Callable[[int, int], None] = lambda _done, _total: None,
) -> CheckReport:
    """Checks every data file of the newest version, which a hold keeps readable.

    `on_rows` receives the number of rows read and the total.
    """
    table = instance.table(name)
    with table.state.reading() as state:
        version = state.version
    seconds = instance.properties().get(QUERY_HOLD_SECONDS)
    hold = VersionHold(table.state, version, seconds, instance.clock, f"check {name}")
    hold.acquire()
    try:
        return check_version(table, version, on_rows)
    finally:
        hold.release()


def check_version(
    table: OpenTable,
    version: int,
    on_rows: Callable[[int, int], None] = lambda _done, _total: None,
) -> CheckReport:
    """Checks every data file of a version that stays readable, as `check_table` does."""
    store = table.state
    with store.reading(version) as state:
        schema = state.schema
        # Paths only: a table may have a million files.
        paths = [f.path for f in state.files.all()]
        total = state.files.totals().rows
    done = 0

    def count(rows: int) -> None:
        nonlocal done
        done += rows
        on_rows(done, total)

    findings: list[FileFault] = []
    for path in paths:
        expected = _describe_file(store, version, path)
        if expected is not None:
            findings += verify_file(table.instance.storage.root, schema, expected, count)
    return CheckReport(table.ref.name, version, len(paths), done, findings)


def _describe_file(store: StateStore, version: int, path: str) -> ExpectedFile | None:
    """Returns the file with the partitions whose row counts in it are exact."""
    with store.reading(version) as state:
        file = state.files.get(path)
        partitions = _find_partitions(state, path)
    if file is None:
        return None
    if len(partitions) == 1 and f"/partition_{partitions[0][0].id}/" in path:
        # References only move down the tree, so this one is that of the file's first version.
        return ExpectedFile(file, partitions)
    return ExpectedFile(file, _find_first_partitions(store, file))


def _find_first_partitions(store: StateStore, file: DataFile) -> tuple[tuple[Partition, int], ...]:
    """Returns the partitions at the version that added the file; later counts are estimates."""
    if file.largest_number is None:
        return ()
    try:
        with store.reading(file.largest_number) as state:
            return _find_partitions(state, file.path)
    except (InvalidRequestError, StateMovedOnError):
        # The version is below the horizon.
        return ()


def _find_partitions(state: TableState, path: str) -> tuple[tuple[Partition, int], ...]:
    references = state.files.file_references([path])
    return tuple((state.partitions.get(r.partition_id), r.rows) for r in references)
