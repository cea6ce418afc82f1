"""Listings of stashes and of their tables."""

from collections.abc import Sequence

from sleeper.reports.output import Column, ColumnKind, Listing, pluralize
from sleeper.stash.destination import StashDestination, StashRoot
from sleeper.stash.layout import EmoTable, StashedTable, root_time_ms

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
