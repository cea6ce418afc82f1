"""Listings of published versions."""

from collections.abc import Iterable

from sleeper.iceberg.publish import Published
from sleeper.iceberg.unpublish import Unpublished
from sleeper.reports.output import Column, ColumnKind, Listing, pluralize

_COLUMNS = (
    Column("table", "Table"),
    Column("snapshot", "Snapshot", ColumnKind.COUNT, lambda each: each.number),
    Column("versionAt", "Transaction at", ColumnKind.TIME, lambda each: each.time_ms),
    Column("rows", "Rows", ColumnKind.COUNT),
    Column("files", "Files", ColumnKind.COUNT),
    Column("deleteFiles", "Delete files", ColumnKind.COUNT, lambda each: each.delete_files),
    Column("snapshots", "Snapshots", ColumnKind.COUNT),
    Column("behind", "Behind", ColumnKind.COUNT),
    Column("metadata", "Metadata", value=lambda each: each.metadata_url),
)


def list_publication(name: str, published: Published) -> Listing:
    """Returns the version that was published by a command."""
    done = "published" if published.is_new else "is published already"
    summary = f"table {name} {done}: {published.metadata_url}"
    if published.behind:
        transactions = pluralize(published.behind, "transaction")
        summary = f"{summary}, {transactions} behind until a compaction"
    return Listing.describe("published", summary, _COLUMNS, [published])


def list_published(published: Iterable[Published]) -> Listing:
    """Returns the versions that were published last, one of each table and location."""
    versions = [*published]
    behind = sum(each.behind > 0 for each in versions)
    summary = f"{pluralize(len(versions), 'published version')}, {behind} behind"
    return Listing.describe("published", summary, _COLUMNS, versions)


_REMOVED = (
    Column("table", "Table"),
    Column("location", "Location"),
    Column("objects", "Objects", ColumnKind.COUNT),
)


def list_unpublished(removed: Unpublished) -> Listing:
    """Returns what was removed of a published table."""
    summary = f"table {removed.table} is no longer published in {removed.location}"
    return Listing.describe("unpublished", summary, _REMOVED, [removed])
