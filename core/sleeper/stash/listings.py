"""Listings of stashes, of their tables, of deleted stashes, and of schedules."""

from collections.abc import Sequence
from dataclasses import dataclass

from sleeper.clock import format_duration
from sleeper.instance import Instance
from sleeper.reports.output import Column, ColumnKind, Listing, pluralize
from sleeper.schedule import next_due_ms
from sleeper.stash.destination import StashDestination, StashRoot
from sleeper.stash.layout import EmoTable, StashedTable, root_time_ms
from sleeper.stash.prune import PruneReport
from sleeper.stash.record import Trigger
from sleeper.stash.record_index import StashRecords
from sleeper.stash.requests import StartRequest, pending_requests
from sleeper.stash.schedules import MissedStart, ScheduleStore, StashSchedule
from sleeper.stash.status import MISSED, StashStatus, get_status
from sleeper.stash.table_files import TableFiles

_ROOT_COLUMNS = (
    Column("stash", "Stash", value=lambda each: each.name),
    Column("isComplete", "Complete", value=lambda each: each.success is not None),
    Column("startedAt", "Started at", ColumnKind.TIME, lambda each: root_time_ms(each.name)),
    Column(
        "completedAt",
        "Completed at",
        ColumnKind.TIME,
        lambda each: each.success and each.success.completed_ms,
    ),
    Column("id", "Id", value=lambda each: each.success and each.success.stash_id),
)
_TABLE_COLUMNS = (
    Column("table", "Table"),
    Column("version", "Transaction", ColumnKind.COUNT),
    Column("versionAt", "Transaction at", ColumnKind.TIME, lambda each: each.time_ms),
    Column("rows", "Rows", ColumnKind.COUNT),
    Column("files", "Files", ColumnKind.COUNT),
    Column("bytes", "Bytes", ColumnKind.BYTES),
    Column("format", "Format", value=lambda each: each.format.value),
    Column("directory", "Directory", value=lambda each: None if each.rows == 0 else each.directory),
)


def list_roots(destination: StashDestination, roots: Sequence[StashRoot]) -> Listing:
    """Returns a row per stash of a destination, newest first."""
    summary = f"{destination.name}: {pluralize(len(roots), 'stash', 'stashes')}"
    return Listing.describe("stashes", summary, _ROOT_COLUMNS, roots[::-1])


def list_tables(destination: str, root: str, tables: Sequence[StashedTable | EmoTable]) -> Listing:
    """Returns a row per table of a stash, by name."""
    by_name = sorted(tables, key=lambda each: each.table)
    summary = f"stash {root} of {destination}: {pluralize(len(tables), 'table')}"
    return Listing.describe("stashed-tables", summary, _TABLE_COLUMNS, by_name)


_FILE_COLUMNS = (
    Column("uri", "URI"),
    Column("bytes", "Bytes", ColumnKind.BYTES),
    Column("rows", "Rows", ColumnKind.COUNT),
    Column("split", "Split"),
)


def list_files(table: TableFiles) -> Listing:
    """Returns a row per file of a table of a stash, by name."""
    rows = "" if table.rows is None else f", {pluralize(table.rows, 'row')}"
    version = "" if table.version is None else f" at transaction {table.version:,}"
    files = pluralize(len(table.files), "file")
    summary = f"{table.table}{version} in {table.uri}: {files}{rows}, {table.format.value}"
    return Listing.describe("stashed-files", summary, _FILE_COLUMNS, table.files)


_PRUNED_COLUMNS = (
    Column("stash", "Stash", value=lambda each: each.name),
    Column("isComplete", "Complete", value=lambda each: each.is_complete),
    Column("oldSince", "Old since", ColumnKind.TIME, lambda each: each.old_since_ms),
    Column("files", "Files", ColumnKind.COUNT),
    Column("bytes", "Bytes", ColumnKind.BYTES),
    Column("otherFiles", "Files kept", ColumnKind.COUNT, lambda each: each.other_files),
)


def list_pruned(report: PruneReport, age_ms: int) -> Listing:
    """Returns a row per stash that was deleted, oldest first."""
    deleted = pluralize(len(report.pruned), "stash", "stashes")
    would = "would delete" if report.is_dry_run else "deleted"
    summary = f"{report.destination}: {would} {deleted} older than {format_duration(age_ms)}"
    return Listing.describe("pruned-stashes", summary, _PRUNED_COLUMNS, report.pruned)


@dataclass(frozen=True, slots=True)
class _Listed:
    schedule: StashSchedule
    next_due_ms: int | None
    last: StashStatus | None
    requests: tuple[StartRequest, ...]
    missed: MissedStart | None

    @property
    def state(self) -> str | None:
        """The state of the last stash, or that the schedule has missed a start since."""
        if self.missed is not None:
            return MISSED
        return None if self.last is None else self.last.state


_SCHEDULE_COLUMNS = (
    Column("destination", "Destination", value=lambda each: each.schedule.destination),
    Column("schedule", "Schedule", value=lambda each: each.schedule.schedule.expression),
    Column("next", "Next start", ColumnKind.TIME, lambda each: each.next_due_ms),
    Column("last", "Last stash", value=lambda each: each.last and each.last.record.name),
    Column("state", "State", value=lambda each: each.state),
    Column("onlyIfRequested", "If requested", value=lambda each: each.schedule.only_if_requested),
    Column("requestedBy", "Requested by", value=lambda each: [r.by for r in each.requests]),
    Column("tables", "Tables", value=lambda each: list(each.schedule.tables) or None),
    Column("exclude", "Exclude", value=lambda each: list(each.schedule.exclude) or None),
    Column("atomic", "Atomic", value=lambda each: each.schedule.atomic),
    Column("format", "Format", value=lambda each: each.schedule.format.value),
    Column("keep", "Keep", value=lambda each: _age(each.schedule.keep_ms)),
)


def list_schedules(instance: Instance) -> Listing:
    """Returns a row per schedule, with its last stash and the requests for the next one."""
    listed = [_look(instance, each) for each in ScheduleStore(instance.storage.root).list()]
    listed.sort(key=lambda each: each.schedule.destination)
    summary = pluralize(len(listed), "schedule")
    if late := sum(each.missed is not None for each in listed):
        summary += f", {late} late"
    return Listing.describe("stash-schedules", summary, _SCHEDULE_COLUMNS, listed)


def _look(instance: Instance, schedule: StashSchedule) -> _Listed:
    own, digest, now_ms = instance.storage.root, schedule.digest, instance.clock()
    records = StashRecords(own).at(digest)
    scheduled = [each for each in records if each.request.trigger is Trigger.SCHEDULE]
    return _Listed(
        schedule,
        next_due_ms(schedule.schedule, now_ms),
        get_status(instance, scheduled[-1]) if scheduled else None,
        pending_requests(own, digest),
        ScheduleStore(own).find_missed(schedule, now_ms),
    )


def _age(age_ms: int | None) -> str | None:
    return None if age_ms is None else format_duration(age_ms)
