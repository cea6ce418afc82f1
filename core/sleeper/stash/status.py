"""The stashes of an instance, as listings."""

from dataclasses import dataclass

from sleeper.errors import NotFoundError
from sleeper.instance import Instance
from sleeper.reports.output import Column, ColumnKind, Listing, pluralize
from sleeper.stash.progress import TableProgress, TaskResult, add_results
from sleeper.stash.record import (
    Cut,
    Decision,
    StashRecord,
    StashRecords,
)
from sleeper.stash.start import is_dead

_WAITING, _RUNNING, _INTERRUPTED, _FINISHING = "waiting", "running", "interrupted", "finishing"


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The progress of one table of a stash. `cut` is the transaction at which it is copied."""

    cut: Cut
    progress: TableProgress

    @property
    def state(self) -> str:
        if self.progress.is_dropped:
            return "left out"
        return "done" if self.progress.is_done else _RUNNING


@dataclass(frozen=True, slots=True)
class StashStatus:
    """A stash of this instance: how far it is, and its last errors."""

    record: StashRecord
    state: str
    decision: Decision | None
    tables: tuple[TableStatus, ...]
    problems: tuple[str, ...]

    @property
    def tables_done(self) -> int:
        return sum(each.progress.is_done for each in self.tables)

    @property
    def tasks(self) -> int:
        """The number of tasks that are known so far."""
        return sum(each.progress.tasks or 0 for each in self.tables)

    @property
    def tasks_done(self) -> int:
        return sum(len(each.progress.done) for each in self.tables)

    @property
    def written(self) -> TaskResult:
        return add_results(each.progress.written for each in self.tables)

    @property
    def reason(self) -> str | None:
        """Why the stash failed, or the last error of a task that is not done."""
        if self.decision is not None:
            return self.decision.reason
        return "; ".join(self.problems) or None


def get_status(instance: Instance, record: StashRecord) -> StashStatus:
    """Returns how far a stash is. NotFoundError if there is no such stash."""
    cuts = record.cuts()
    progress = record.progress()
    tables = tuple(TableStatus(cut, progress.get(cut.id, TableProgress())) for cut in cuts or ())
    decision = record.decision()
    problems = () if decision else tuple(record.problems(progress))
    state = _state(instance, record, decision, cuts is not None)
    return StashStatus(record, state, decision, tables, problems)


def _state(instance: Instance, record: StashRecord, decision: Decision | None, is_cut: bool) -> str:
    if decision is None and is_dead(record, instance.clock):
        return _INTERRUPTED
    if decision is not None:
        return _FINISHING if record.is_running() else decision.outcome.value
    return _RUNNING if is_cut else _WAITING


_COLUMNS = (
    Column("stash", "Stash", value=lambda each: each.record.name),
    Column("destination", "Destination", value=lambda each: each.record.request.destination),
    Column("state", "State", value=lambda each: each.state),
    Column("trigger", "Started by", value=lambda each: each.record.request.trigger.value),
    Column("format", "Format", value=lambda each: each.record.request.format.value),
    Column("tables", "Tables", value=lambda each: f"{each.tables_done}/{len(each.tables)}"),
    Column("tasks", "Tasks", value=lambda each: f"{each.tasks_done}/{each.tasks}"),
    Column("rows", "Rows", ColumnKind.COUNT, lambda each: each.written.rows),
    Column("bytes", "Bytes", ColumnKind.BYTES, lambda each: each.written.bytes),
    Column("reason", "Reason", value=lambda each: each.reason),
)
_TABLE_COLUMNS = (
    Column("table", "Table", value=lambda each: each.cut.table),
    Column("version", "Transaction", ColumnKind.COUNT, lambda each: each.cut.version),
    Column("state", "State", value=lambda each: each.state),
    Column(
        "tasks", "Tasks", value=lambda each: f"{len(each.progress.done)}/{each.progress.tasks or 0}"
    ),
    Column("rows", "Rows", ColumnKind.COUNT, lambda each: each.progress.written.rows),
    Column("files", "Files", ColumnKind.COUNT, lambda each: each.progress.written.files),
    Column("bytes", "Bytes", ColumnKind.BYTES, lambda each: each.progress.written.bytes),
)


def list_statuses(instance: Instance, digest: str | None) -> Listing:
    """Returns a row for each stash that the instance made or makes, newest first.

    `digest` is that of a destination, to leave out the others.
    """
    found = []
    for record in StashRecords(instance.storage.root).all():
        try:
            if digest in (None, record.digest):
                found.append(get_status(instance, record))
        except NotFoundError:
            continue  # deleted meanwhile
    running = sum(each.state not in ("complete", "cancelled", "failed") for each in found)
    summary = f"{pluralize(len(found), 'stash', 'stashes')}, {running} not ended"
    return Listing.describe("stash-runs", summary, _COLUMNS, found)


def list_table_statuses(status: StashStatus) -> Listing:
    """Returns a row for each table of a stash, and its errors in the summary."""
    reason = f": {status.reason}" if status.reason else ""
    summary = f"stash {status.record.name} is {status.state}{reason}"
    return Listing.describe("stash-run", summary, _TABLE_COLUMNS, status.tables)
