"""The report on a check of a table's data files against its state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sleeper.datafiles.verification import ExpectedFile, FileFault, verify_file
from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.files.data_file import DataFile
from sleeper.instance import Instance
from sleeper.partitions.partition import Partition
from sleeper.properties.engine import QUERY_HOLD_SECONDS
from sleeper.query.hold import VersionHold
from sleeper.reports.output import Column, ColumnKind, Listing, counted
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.store import StateStore

_COLUMNS = (
    Column("path", "File", ColumnKind.PATH),
    Column("row_group", "Row group", ColumnKind.COUNT),
    Column("fault", "Fault"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with a file; `row_group` is None if it is with all of it."""

    path: str
    row_group: int | None
    fault: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What was read of a table at a version, and what is wrong with it."""

    table: str
    version: int
    files: int
    rows: int
    findings: Sequence[Finding]

    def listing(self) -> Listing:
        """A row for each thing that is wrong."""
        verdict = "no faults" if not self.findings else counted(len(self.findings), "fault")
        return Listing(
            name="check",
            summary=(
                f"table {self.table} at version {self.version:,}: {counted(self.files, 'file')}, "
                f"{counted(self.rows, 'row')} read: {verdict}"
            ),
            columns=_COLUMNS,
            rows=tuple((f.path, f.row_group, f.fault) for f in self.findings),
        )


OnRows = Callable[[int, int], None]
"""Hears how many rows were read, and how many there are in all."""


def check_table(
    instance: Instance, name: str, on_rows: OnRows = lambda _done, _total: None
) -> CheckReport:
    """Reads every data file of the table's newest version, under a hold."""
    table = instance.table(name)
    store = table.state
    with store.reading() as state:
        version, schema = state.version, state.schema
        # Paths only: a table may have a million files.
        paths = [f.path for f in state.files.all()]
        total = state.files.totals().rows
    seconds = instance.properties().get(QUERY_HOLD_SECONDS)
    hold = VersionHold(store, version, seconds, instance.clock, f"check {name}")
    hold.take()
    done = 0

    def count(rows: int) -> None:
        nonlocal done
        done += rows
        on_rows(done, total)

    findings: list[FileFault] = []
    try:
        for path in paths:
            expected = _expected(store, version, path)
            if expected is not None:
                findings += verify_file(instance.storage.root, schema, expected, count)
    finally:
        hold.release()
    found = tuple(Finding(f.path, f.row_group, f.fault) for f in findings)
    return CheckReport(name, version, len(paths), done, found)


def _expected(store: StateStore, version: int, path: str) -> ExpectedFile | None:
    """The file, with partitions whose rows in it are known exactly."""
    with store.reading(version) as state:
        file = state.files.get(path)
        partitions = _partitions_of(state, path)
    if file is None:
        return None
    if len(partitions) == 1 and f"/partition_{partitions[0][0].id}/" in path:
        # References are pushed down only, so this one is where the file was written to.
        return ExpectedFile(file, partitions)
    return ExpectedFile(file, _partitions_at_first(store, file))


def _partitions_at_first(store: StateStore, file: DataFile) -> tuple[tuple[Partition, int], ...]:
    """Of the version that an ingest made: later references are estimates."""
    if file.largest_number is None:
        return ()
    try:
        with store.reading(file.largest_number) as state:
            return _partitions_of(state, file.path)
    except (InvalidRequestError, StateMovedOnError):
        # Below the horizon: nobody knows any more.
        return ()


def _partitions_of(state: TableState, path: str) -> tuple[tuple[Partition, int], ...]:
    found = state.files.references_to([path])
    return tuple((state.partitions.get(r.partition_id), r.rows) for r in found)
