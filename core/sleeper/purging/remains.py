"""What may hold purged keys or rows and is not part of the table's storage."""

from collections.abc import Iterator, Sequence

from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.partitions.region import Region
from sleeper.properties.instance import QUERY_TRACKER_DAYS, TRACKER_DAYS
from sleeper.purging.report import ObjectState, PurgedObject
from sleeper.reports.output import pluralize
from sleeper.runs.commit import has_committer
from sleeper.schema.model import smallest_key_value
from sleeper.statestore.reading.table_state import TableState


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
        "ingested files, exports, clones, query results, logs and backups are not searched",
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
