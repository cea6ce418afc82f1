"""What a purge leaves: objects that are kept for readers, and what is outside of the table."""

from collections.abc import Iterator, Sequence

from sleeper.errors import NotFoundError
from sleeper.garbage_collection.collection import find_retention
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.queue import QueueName
from sleeper.partitions.region import Region
from sleeper.properties.instance import DELETION_DELAY_HOURS, QUERY_TRACKER_DAYS, TRACKER_DAYS
from sleeper.properties.table import HISTORY_RETENTION
from sleeper.purging.report import ObjectState, PurgedObject
from sleeper.reports.output import pluralize
from sleeper.runs.commit import has_committer
from sleeper.schema.model import smallest_key_value
from sleeper.statestore.holds import MARGIN_MS
from sleeper.statestore.reading.snapshot_queries import SnapshotVersion
from sleeper.statestore.reading.table_state import TableState
from sleeper.tables import TableId, TableRef

_HOUR_MS = 3_600_000


def find_claim(table: OpenTable, number: int) -> tuple[str | None, int | None]:
    """Returns the lowest claim on a version below the number and the end of all, if known."""
    time_ms = now_ms(table)
    followers = [f for f in table.state.followers() if f.position < number and not f.is_passed]
    holds = [hold for hold in table.state.holds.unexpired() if hold.version < number]
    with table.state.reading() as state:
        if state.is_snapshot_table:
            followers = []  # they keep no versions
        versions = [v for v in state.snapshots.versions() if v.number < number]
    claims = [(h.version, f"hold {h.id} of {h.owner} at version {h.version}") for h in holds]
    claims += [(f.position, f"follower {f.name} at version {f.position}") for f in followers]
    claims += [(v.number, _describe_version(table, v)) for v in versions]
    ends_ms = [h.expiry_ms + MARGIN_MS for h in holds]
    retained_ms = find_retention(table.properties()).versions_ms
    if retained_ms is not None:
        with table.state.reading() as state:
            end_ms = state.entry_time_ms(number) + retained_ms
        if time_ms < end_ms:
            claims.append((number, HISTORY_RETENTION.name))
            ends_ms.append(end_ms)
    if not claims:
        return None, None
    more = f" and {len(claims) - 1:,} more" if len(claims) > 1 else ""
    until_ms = None if followers or versions else max(ends_ms)
    return min(claims)[1] + more, until_ms


def _describe_version(table: OpenTable, version: SnapshotVersion) -> str:
    expires = f"it expires (sleeper snapshot expire {table.ref.name})"
    condition = expires if version.ended is not None else f"a load replaces it and {expires}"
    return f"snapshot version {version.number}, until {condition}"


def find_clones(table: OpenTable, path: str) -> tuple[str | None, int | None]:
    """Returns the clones that need the file, and the time when their files are deleted, if known.

    A deleted clone needs it as long as it can be brought back.
    """
    instance = table.instance
    with table.state.reading() as state:
        clones = [
            _find_table(instance, TableId(clone)) for clone in state.collection.clones_of(path)
        ]
    if not clones:
        return None, None
    hours = instance.properties().get(DELETION_DELAY_HOURS)
    ends_ms = [
        None if each.deleted_ms is None else each.deleted_ms + hours * _HOUR_MS for each in clones
    ]
    names = ", ".join(_describe_clone(each) for each in clones)
    return f"needed by {names}", None if None in ends_ms else max(end for end in ends_ms if end)


def _describe_clone(clone: TableRef) -> str:
    name = f"clone {clone.name}"
    if clone.deleted_ms is None:
        return name
    return (
        f"{name}, which is deleted and can be brought back "
        f"(sleeper table delete {clone.name} --now ends that)"
    )


def _find_table(instance: Instance, table_id: TableId) -> TableRef:
    """Returns the row of a table, one with its id as the name if the index has none."""
    try:
        return instance.tables.index.get(table_id)
    except NotFoundError:
        return TableRef(table_id, table_id)


def name_table(instance: Instance, table_id: TableId) -> str:
    """Returns the name of a table, or its id if the index does not have it."""
    return _find_table(instance, table_id).name


def now_ms(table: OpenTable) -> int:
    """Returns the current time of the table."""
    with table.state.reading() as state:
        time_ms: int = state.moment(table.instance.clock())
    return time_ms


def list_remains(instance: Instance, splits: int) -> Iterator[PurgedObject]:
    """Yields what remains, with `splits` partition boundaries within the purged regions."""
    properties = instance.properties()
    if splits:
        reason = "split points of the deleted regions are part of the table's tree"
        yield _remaining(pluralize(splits, "partition boundary", "boundaries"), reason)
    versions = instance.storage.find_old_versions()
    if versions is not None:
        yield _remaining("old versions of deleted objects", versions)
    if has_committer(instance):
        waiting = instance.jobs.queue(QueueName.COMMITS).counts().unfinished
        if waiting:
            reason = "they may hold key bounds of files"
            yield _remaining(pluralize(waiting, "queued commit"), reason)
        yield _remaining(
            "copies of the state in functions and tasks",
            "they follow the log at their next use, and end with their environments",
        )
    days = properties.get(TRACKER_DAYS)
    yield _remaining("job tracker", f"errors of jobs may name keys: {pluralize(days, 'day')}")
    days = properties.get(QUERY_TRACKER_DAYS)
    yield _remaining("query tracker", f"queries name keys: {pluralize(days, 'day')}")
    yield _remaining(
        "files outside of the table",
        "ingested files, exports, clones, results, logs and backups are not searched",
    )


def _remaining(name: str, reason: str) -> PurgedObject:
    return PurgedObject(name, ObjectState.REMAINS, reason=reason)


def count_splits(state: TableState, regions: Sequence[Region]) -> int:
    """Returns the number of leaves that begin at a value within one of the regions."""
    first = [smallest_key_value(field) for field in state.schema.row_keys]
    return sum(
        any(
            within.min != low and r.ranges[index].contains(within.min)
            for r in regions
            for index, (within, low) in enumerate(zip(leaf.region.ranges, first, strict=True))
        )
        for leaf in (state.partitions.leaves() if regions else ())
    )
