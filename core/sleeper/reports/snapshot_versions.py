"""The report on the versions of a snapshot table."""

from dataclasses import dataclass

from sleeper.clock import format_duration, iso_time
from sleeper.errors import InvalidRequestError
from sleeper.garbage_collection.snapshot_versions import (
    ExpiryReport,
    VersionStatus,
    find_policy,
    find_versions,
)
from sleeper.instance import OpenTable
from sleeper.properties.table import SNAPSHOT_TTL
from sleeper.reports.output import Column, ColumnKind, Listing, pluralize
from sleeper.statestore.reading.snapshot_queries import ExpiredVersion


def _expiry_ms(status: VersionStatus) -> int | None:
    """Returns when a version expires: if at once, the time at which another replaced it."""
    return status.version.ended_ms if status.expiry_ms == 0 else status.expiry_ms


COLUMNS = (
    Column("version", "Version", ColumnKind.COUNT, lambda each: each.version.number),
    Column("publishedAt", "Published at", ColumnKind.TIME, lambda each: each.version.published_ms),
    Column("load", "Load", value=lambda each: each.version.job),
    Column("rows", "Rows", ColumnKind.COUNT, lambda each: each.version.rows),
    Column("bytes", "Bytes", ColumnKind.BYTES, lambda each: each.version.bytes),
    Column("files", "Files", ColumnKind.COUNT, lambda each: each.version.files),
    Column("expiresAt", "Expires at", ColumnKind.TIME, _expiry_ms),
    Column("heldBy", "Held by", value=lambda each: ", ".join(h.owner for h in each.holds) or None),
)


@dataclass(frozen=True, slots=True)
class SnapshotVersionsReport:
    """The versions of a snapshot table that have not expired, newest first.

    `expired` is the newest version if it has expired, because no load came within `ttl_ms`.
    """

    table_name: str
    versions: tuple[VersionStatus, ...]
    expired: ExpiredVersion | None
    ttl_ms: int | None

    def listing(self) -> Listing:
        """Returns a row per version."""
        summary = f"table {self.table_name}: {pluralize(len(self.versions), 'version')}"
        note = self.describe_absence()
        return Listing.describe("snapshot-versions", summary, COLUMNS, self.versions, note)

    def describe_newest(self) -> str | None:
        """Returns a description of the newest version, or why there is none."""
        absence = self.describe_absence()
        if absence is not None:
            # Queries read the newest version, so none of these unless they ask for it.
            count = len(self.versions)
            number = "its number" if count == 1 else "their numbers"
            older = f"; {pluralize(count, 'older version')} can be read as of {number}"
            return absence + (older if count else "")
        newest, expiry_ms = self.versions[0].version, self.versions[0].expiry_ms
        text = f"version {newest.number}, published at {iso_time(newest.published_ms)}"
        if expiry_ms is not None:
            text += f", expires at {iso_time(expiry_ms)}"
        return f"{text}; {pluralize(len(self.versions), 'version')} in all"

    def describe_absence(self) -> str | None:
        """Returns why the table has no version to read; None if it has one."""
        note = None
        if self.expired is not None:
            note = (
                f"version {self.expired.number}, the newest, expired at "
                f"{iso_time(self.expired.expired_ms)}"
            )
            if self.ttl_ms is not None:
                note += f": no load came for {format_duration(self.ttl_ms)} ({SNAPSHOT_TTL.name})"
        elif not self.versions:
            note = "no snapshot yet"
        return note


def gather_snapshot_versions(table: OpenTable) -> SnapshotVersionsReport:
    """Reads the versions of a table. InvalidRequestError if it is not a snapshot table."""
    properties, holds = table.properties(), table.state.holds.unexpired()
    with table.state.reading() as state:
        if not state.is_snapshot_table:
            raise InvalidRequestError(
                f"table {table.ref.name!r} is not a snapshot table (expected "
                "sleeper.table.type=snapshot)"
            )
        versions = find_versions(state, find_policy(properties), holds)
        expired = state.snapshots.expired_newest()
    return SnapshotVersionsReport(table.ref.name, versions, expired, properties.get(SNAPSHOT_TTL))


def describe_expiry(name: str, report: ExpiryReport, dry_run: bool) -> Listing:
    """Describes the versions that expired, or that would in a dry run."""
    verb = "would expire" if dry_run else "expired"
    note = None
    if report.held:
        held = ", ".join(str(each.version.number) for each in report.held)
        note = f"kept by holds: version {held}"
    summary = f"table {name}: {pluralize(len(report.expired), 'version')} {verb}"
    return Listing.describe("expired-versions", summary, COLUMNS, report.expired, note)
