"""Removes published versions from before a purge: their bounds and delete files may name its keys.

It is a step of `sleeper purge`, after the rewriting of data files. The newest version is published
again as the only one, and whatever it does not need is deleted at once. If it cannot be published,
nothing stays published.
"""

from collections.abc import Iterator

from sleeper.errors import InvalidRequestError
from sleeper.iceberg.locations import metadata_of, recorded_locations
from sleeper.iceberg.metadata import table_id_of
from sleeper.iceberg.metadata_versions import MetadataVersions
from sleeper.iceberg.properties import HOLD_OWNER, ICEBERG_HOLD_SECONDS
from sleeper.iceberg.unpublish import remove_published
from sleeper.instance import OpenTable
from sleeper.purging.report import ObjectState, PurgedObject
from sleeper.query.hold import create_hold
from sleeper.reports.output import pluralize
from sleeper.statestore.transactions.transaction import new_transaction_id
from sleeper.storage.location import open_root


def purge_published(table: OpenTable) -> list[PurgedObject]:
    """Removes earlier versions from all locations of the table. Returns what was removed."""
    oldest = table.state.newest_number()
    removed = list(_purge_locations(table))
    if removed:
        _release_holds(table, oldest)
    return removed


def _release_holds(table: OpenTable, oldest: int) -> None:
    """Releases the holds of versions below the oldest that is published."""
    store = table.state
    holds = [
        each.id
        for each in store.holds.unexpired()
        if each.owner == HOLD_OWNER and each.version < oldest
    ]
    if not holds:
        return
    # A publication shares a hold of an earlier version that lasts long enough.
    seconds, now_ms = table.properties().get(ICEBERG_HOLD_SECONDS), table.instance.clock()
    create_hold(store, new_transaction_id(), HOLD_OWNER, oldest, now_ms, seconds, is_new=True)
    store.holds.release(holds)


def _purge_locations(table: OpenTable) -> Iterator[PurgedObject]:
    for url in recorded_locations(table):
        found = metadata_of(table, url)
        # Whoever may not read published metadata may list it, and mostly there is none.
        metadata = found.read()[1] if next(found.list_own(), None) is not None else None
        if metadata is not None and table_id_of(metadata) == table.ref.id:
            versions = MetadataVersions(open_root(url, table.instance.storage.root))
            yield _purge_location(table, versions)


def _purge_location(table: OpenTable, versions: MetadataVersions) -> PurgedObject:
    try:
        from sleeper.iceberg.service import publish_only_newest

        count = publish_only_newest(table, versions.root)
    except InvalidRequestError as error:
        count = remove_published(versions)
        reason = f"nothing is published any more: {error}"
    else:
        reason = f"version {table.state.newest_number():,} is published again"
    name = f"{versions.url}: {pluralize(count, 'object')} of published versions"
    return PurgedObject(name, ObjectState.GONE, reason=reason)
