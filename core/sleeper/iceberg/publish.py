"""Publishes the newest version of a table.

The metadata that was published before tells the version from which the state knows the changes,
so a publisher keeps nothing between two of them, and several may take turns.
"""

from dataclasses import dataclass

from sleeper.errors import ConflictError, InvalidRequestError, StateMovedOnError
from sleeper.iceberg.file_rows import Changes, all_files, find_changes
from sleeper.iceberg.location import Location
from sleeper.iceberg.locations import is_of_table, names_own_files, record_location
from sleeper.iceberg.manifest_writer import ManifestWriter
from sleeper.iceberg.manifests import (
    Content,
    Manifest,
    choose_buckets,
)
from sleeper.iceberg.metadata import (
    INSTANCE_DATA,
    TABLE_NAME,
    Metadata,
    SnapshotContent,
    current_number,
    current_snapshot,
    make_metadata,
    number_of,
    snapshots_of,
)
from sleeper.iceberg.metadata_versions import MetadataVersions
from sleeper.iceberg.properties import HOLD_OWNER
from sleeper.iceberg.publishable import check_publishable, find_uncompacted
from sleeper.instance import OpenTable
from sleeper.query.hold import take_shared_hold
from sleeper.retries import Backoff, retry
from sleeper.schema.model import Schema
from sleeper.statestore.reading.table_state import TableState

_RETRIES = Backoff(retries=4)


@dataclass(frozen=True, slots=True)
class Published:
    """A published version of the table of a name.

    `metadata_url` names the metadata, and `snapshots` counts the versions that it lists. `files`,
    `rows`, `delete_files` and `hidden_rows` describe this one; `is_new` means that it was published
    by this call. The table has `behind` transactions after it, whose rows must be compacted before
    they can be published.
    """

    table: str
    number: int
    time_ms: int
    location: str
    metadata_url: str
    snapshots: int
    files: int
    rows: int
    delete_files: int
    hidden_rows: int
    is_new: bool
    behind: int
    metadata_version: int
    metadata: Metadata


def publish(
    table: OpenTable, location: Location, hold_seconds: int, expires: bool = False
) -> Published:
    """Publishes the newest version, unless the one that was published last has the same rows.

    With `expires` it is published in any case, and earlier versions are no longer listed.

    It is held for at least two thirds of the seconds. While a table must be compacted, the version
    that was published before stays. InvalidRequestError if the table cannot
    be published, or the location has another table.
    """

    def attempt() -> Published:
        store = table.state
        number = store.newest_number()
        _hold(table, number, hold_seconds)
        with store.reading(number) as state:
            published = _Publication(table, location, state, expires).run()
        # Much of the time of the first hold may have passed, or all of it.
        _hold(table, published.number if published.behind else number, hold_seconds)
        return published

    return retry(attempt, on=(StateMovedOnError, ConflictError), backoff=_RETRIES)


def _hold(table: OpenTable, version: int, seconds: int) -> None:
    if table.state.holds.accepts_writes:
        take_shared_hold(table.state, version, seconds, table.instance.clock, HOLD_OWNER)


class _Publication:
    """One publication of the version of a state."""

    def __init__(
        self, table: OpenTable, location: Location, state: TableState, expires: bool
    ) -> None:
        check_publishable(table.ref.name, state)
        self._table = table
        self._location = location
        self._state = state
        self._schema: Schema = state.schema
        self._root = table.instance.storage.root
        self._expires = expires
        self._version, self._before = location.read()
        self._check_same_table()
        parent = current_number(self._before)
        if parent is not None and parent > state.version:
            raise InvalidRequestError(
                f"{location.url} has version {parent}, which table {table.ref.name!r} has not "
                f"reached: its newest is {state.version} (expected an empty location)"
            )
        self._parent = parent or 0
        self._is_same_history = self._before is None or self._has_published(self._before)

    def run(self) -> Published:
        before = self._before
        uncompacted = find_uncompacted(self._state)
        if uncompacted is not None:
            return self._keep(uncompacted)
        changes = self._find_changes()
        if before is not None and changes is not None and self._is_unchanged(changes):
            return self._describe(self._version, before, is_new=False)
        # A backup has the property of a table, but not its records.
        record_location(self._table, self._location)
        manifests = self._write_manifests(changes)
        is_child = before is not None and self._is_same_history and not self._expires
        parent = self._parent if is_child and self._parent < self._state.version else None
        url = self._location.write_list(manifests, self._state.version, parent)
        version = self._version + 1
        metadata = make_metadata(
            before,
            self._table.ref,
            self._location.url,
            self._schema,
            self._content(manifests, url, parent),
            self._readable_snapshots(),
            self._table.instance.clock(),
        )
        metadata["properties"][INSTANCE_DATA] = self._root.url_of("")
        self._location.write(version, metadata)
        return self._describe(version, metadata, is_new=True)

    def _keep(self, reason: str) -> Published:
        """Returns the version that was published before, if it is readable and may stay."""
        if self._before is None or self._expires or not self._knows_parent():
            raise InvalidRequestError(
                f"table {self._table.ref.name!r} {reason} (expected compacted leaves: "
                f"`sleeper iceberg publish {self._table.ref.name} --compact`)"
            )
        behind = self._state.version - self._parent
        return self._describe(self._version, self._before, is_new=False, behind=behind)

    def _check_same_table(self) -> None:
        if self._before is None:
            self._location.check_empty()
        elif not is_of_table(self._table, self._location, self._before):
            self._before = None

    def _has_published(self, before: Metadata) -> bool:
        """Returns whether the table has the published version, and its files are where they were.

        A table of a backup may have other transactions with the same numbers, and the metadata in
        a copy of an instance names the files of the other one.
        """
        time_ms: int = current_snapshot(before)["timestamp-ms"]
        is_own = names_own_files(self._table, self._location, before)
        return is_own and time_ms == self._state.entry_time_ms(self._parent)

    def _knows_parent(self) -> bool:
        """Returns whether the state knows all changes since the last snapshot."""
        return self._is_same_history and self._is_readable(self._parent)

    def _is_readable(self, number: int) -> bool:
        """Returns whether all files of a version are kept. Some of an expired one are collected."""
        return self._state.find_fault(number) is None

    def _readable_snapshots(self) -> list[Metadata]:
        """Returns the snapshots that were published before and are still listed."""
        if not self._is_same_history or self._expires:
            return []
        return [each for each in snapshots_of(self._before) if self._is_readable(number_of(each))]

    def _find_changes(self) -> Changes | None:
        """Returns the changes since the last snapshot; None if the state forgot some."""
        if self._before is None or not self._knows_parent():
            return None
        return find_changes(self._state, self._parent)

    def _is_unchanged(self, changes: Changes) -> bool:
        assert self._before is not None
        return (
            not self._expires
            and not changes.present
            and not changes.absent
            and self._before["current-schema-id"] == self._schema.version
            # Otherwise the metadata lists a version that is no longer readable.
            and len(self._readable_snapshots()) == len(list(snapshots_of(self._before)))
        )

    def _write_manifests(self, changes: Changes | None) -> list[Manifest]:
        """Returns the manifests of the version, of which it writes those that differ."""
        listed = self._listed()
        buckets = listed[0].buckets if listed else 0
        files = sum(each.files for each in listed if each.content is Content.DATA)
        chosen = choose_buckets(max(files, len(changes.present) if changes else 0), buckets)
        writer = ManifestWriter(self._table, self._location, self._state, self._parent)
        if changes is not None and chosen == buckets:
            return writer.write_changed(changes, listed, buckets)
        present = all_files(self._state)
        return writer.write_all(present, listed, choose_buckets(len(present), buckets))

    def _listed(self) -> list[Manifest]:
        if self._before is None or self._before["location"] != self._location.url:
            return []
        return self._location.read_list(current_snapshot(self._before)["manifest-list"])

    def _content(self, manifests: list[Manifest], url: str, parent: int | None) -> SnapshotContent:
        data, deletes = (
            [each for each in manifests if each.content is content] for content in Content
        )
        hidden = sum(each.rows for each in deletes)
        return SnapshotContent(
            self._state.version,
            parent,
            self._state.version_time_ms,
            url,
            sum(each.files for each in data),
            sum(each.rows for each in data),
            sum(each.files for each in deletes),
            hidden,
        )

    def _describe(
        self, version: int, metadata: Metadata, is_new: bool, behind: int = 0
    ) -> Published:
        return describe(self._location, version, metadata, is_new, behind)


def describe(
    location: MetadataVersions, version: int, metadata: Metadata, is_new: bool, behind: int
) -> Published:
    """Returns what a version of the metadata says about the snapshot that was published last."""
    snapshot = current_snapshot(metadata)
    summary = snapshot["summary"]
    return Published(
        metadata["properties"][TABLE_NAME],
        snapshot["snapshot-id"],
        snapshot["timestamp-ms"],
        location.url,
        location.metadata_url(version),
        len(list(snapshots_of(metadata))),
        int(summary["total-data-files"]),
        int(summary["total-records"]) - int(summary["total-position-deletes"]),
        int(summary["total-delete-files"]),
        int(summary["total-position-deletes"]),
        is_new,
        behind,
        version,
        metadata,
    )
