"""The state of an instance's stashes: listings, and problems."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from sleeper.errors import NotFoundError
from sleeper.instance import Instance
from sleeper.reports.output import Column, ColumnKind, Listing, pluralize
from sleeper.reports.problem import Problem, ProblemState, check_each
from sleeper.stash.layout import root_name
from sleeper.stash.progress import TableProgress, TaskResult, add_results
from sleeper.stash.record import STASHES_FOLDER, Decision, StashRecord, StashRequest, TableVersion
from sleeper.stash.record_index import StashRecords
from sleeper.stash.schedules import ScheduleStore
from sleeper.stash.start import is_dead
from sleeper.stash.table_choice import OmittedTable, describe_omitted, read_omitted

_WAITING, _RUNNING, _INTERRUPTED, _FINISHING = "waiting", "running", "interrupted", "finishing"
MISSED = "missed"
_STATES = {"failed": ProblemState.FAILING, "interrupted": ProblemState.DEAD}


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The progress of one table of a stash. `version` is the transaction at which it is copied."""

    version: TableVersion
    progress: TableProgress

    @property
    def state(self) -> str:
        if self.progress.is_dropped:
            return "left out"
        return "done" if self.progress.is_done else _RUNNING


@dataclass(frozen=True, slots=True)
class StashStatus:
    """A stash of this instance: how far it is, what it omits, and its last errors."""

    record: StashRecord
    state: str
    decision: Decision | None
    tables: tuple[TableStatus, ...]
    problems: tuple[str, ...]
    omitted: tuple[OmittedTable, ...] = ()

    @property
    def tables_text(self) -> str:
        return f"{sum(each.progress.is_done for each in self.tables)}/{len(self.tables)}"

    @property
    def tasks(self) -> int:
        """The number of tasks that are known so far."""
        return sum(each.progress.tasks or 0 for each in self.tables)

    @property
    def tasks_done(self) -> int:
        return sum(len(each.progress.done) for each in self.tables)

    @property
    def tasks_text(self) -> str:
        return f"{self.tasks_done}/{self.tasks}"

    @property
    def written(self) -> TaskResult:
        return add_results(each.progress.written for each in self.tables)

    @property
    def reason(self) -> str | None:
        """Why the stash failed, or the last errors of unfinished tasks; and omitted tables."""
        decided = self.decision.reason if self.decision is not None else None
        texts = (decided, *self.problems, describe_omitted(self.omitted))
        return "; ".join(filter(None, texts)) or None


def get_status(instance: Instance, record: StashRecord) -> StashStatus:
    """Returns how far a stash is. NotFoundError if there is no such stash."""
    versions = record.versions()
    progress = record.progress()
    tables = tuple(
        TableStatus(version, progress.get(version.id, TableProgress()))
        for version in versions or ()
    )
    decision = record.decision()
    problems = () if decision else tuple(record.problems(progress))
    state = _state(instance, record, decision, versions is not None)
    return StashStatus(record, state, decision, tables, problems, read_omitted(record))


def _state(
    instance: Instance, record: StashRecord, decision: Decision | None, has_versions: bool
) -> str:
    if decision is None and is_dead(record, instance.clock):
        return _INTERRUPTED
    if decision is not None:
        return _FINISHING if record.is_running() else decision.outcome.value
    return _RUNNING if has_versions else _WAITING


@dataclass(frozen=True, slots=True)
class _Listed:
    """A stash, or the start of one that a schedule has missed."""

    name: str
    state: str
    reason: str | None
    request: StashRequest
    status: StashStatus | None = None


_COLUMNS = (
    Column("stash", "Stash", value=lambda each: each.name),
    Column("destination", "Destination", value=lambda each: each.request.destination),
    Column("state", "State"),
    Column("trigger", "Started by", value=lambda each: each.request.trigger.value),
    Column("format", "Format", value=lambda each: each.request.format.value),
    Column("tables", "Tables", value=lambda each: each.status and each.status.tables_text),
    Column("tasks", "Tasks", value=lambda each: each.status and each.status.tasks_text),
    Column("rows", "Rows", ColumnKind.COUNT, lambda each: each.status and each.status.written.rows),
    Column(
        "bytes", "Bytes", ColumnKind.BYTES, lambda each: each.status and each.status.written.bytes
    ),
    Column("reason", "Reason"),
)
_TABLE_COLUMNS = (
    Column("table", "Table", value=lambda each: each.version.table),
    Column("version", "Transaction", ColumnKind.COUNT, lambda each: each.version.number),
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

    Also for each start that a schedule has missed. `digest` is that of a destination, to leave out
    the others.
    """
    own = instance.storage.root
    listed = []
    for record in StashRecords(own).all():
        try:
            if digest in (None, record.digest):
                each = get_status(instance, record)
                listed.append(_Listed(record.name, each.state, each.reason, record.request, each))
        except NotFoundError:
            continue  # deleted meanwhile
    missed = [
        _Listed(root_name(each.due_ms), MISSED, each.reason, each.schedule.make_request())
        for each in ScheduleStore(own).list_missed(instance.clock())
        if digest in (None, each.schedule.digest)
    ]
    running = sum(each.state not in ("complete", "cancelled", "failed") for each in listed)
    summary = f"{pluralize(len(listed), 'stash', 'stashes')}, {running} not ended"
    if missed:
        summary += f", {pluralize(len(missed), 'schedule')} late"
    return Listing.describe("stash-runs", summary, _COLUMNS, [*missed, *listed])


def list_table_statuses(status: StashStatus) -> Listing:
    """Returns a row for each table of a stash, and its errors in the summary."""
    reason = f": {status.reason}" if status.reason else ""
    summary = f"stash {status.record.name} is {status.state}{reason}"
    return Listing.describe("stash-run", summary, _TABLE_COLUMNS, status.tables)


def find_problems(instance: Instance) -> Iterator[Problem]:
    """Yields the problems of the instance's stashes."""
    root = instance.storage.root
    yield from check_each("stash", ScheduleStore(root).digests(), partial(_find_missed, instance))
    destinations = sorted(root.list_folders(STASHES_FOLDER))
    yield from check_each("stash", destinations, partial(_find_failed, instance))


def _find_missed(instance: Instance, digest: str) -> Iterator[Problem]:
    """Yields the start that the schedule of a destination has missed."""
    schedules = ScheduleStore(instance.storage.root)
    schedule = schedules.get(digest)
    missed = schedules.find_missed(schedule, instance.clock()) if schedule else None
    if missed is not None:
        name = missed.schedule.destination
        yield Problem(ProblemState.OVERDUE, "stash", name, missed.reason, missed.due_ms)


def _find_failed(instance: Instance, digest: str) -> Iterator[Problem]:
    """Yields the last stash of a destination, if it failed or left tables out."""
    for record in StashRecords(instance.storage.root).at(digest)[-1:]:
        try:
            status = get_status(instance, record)
        except NotFoundError:
            return  # deleted meanwhile
        if status.state in _STATES or status.omitted:
            state = _STATES.get(status.state, ProblemState.FAILING)
            reason = f"stash {record.name} is {status.state}: {status.reason}"
            yield Problem(state, "stash", record.request.destination, reason)
