"""Files that clones share with the table that owns them.

The owner's log holds a pin per file and clone. A clone's collection unpins a file instead of
deleting it. The pins of a deleted clone are dropped by the owner's collection. A deleted owner
keeps its log and the pinned objects until the last pin is gone.
"""

import logging
from itertools import islice

from sleeper.errors import DataError, NotFoundError, UnavailableError
from sleeper.garbage_collection.orphans import data_path
from sleeper.instance import Instance
from sleeper.statestore.fold import DAY_MS
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.pins import UnpinFiles
from sleeper.statestore.transactions.table_definition import AcceptTime
from sleeper.tables import TableId, TableRef, TableState

logger = logging.getLogger(__name__)

_DELETED_AT_ONCE = 1_000


def unpin_files(instance: Instance, clone_id: TableId, owner_id: TableId, paths: list[str]) -> None:
    """Ends the clone's need of files of their owner. Idempotent."""
    try:
        owner = instance.tables.index.get(owner_id)
    except NotFoundError:
        return  # an earlier, interrupted call released the last pins of a deleted owner
    try:
        instance.tables.state(owner_id).commit_or_raise(UnpinFiles(clone_id, tuple(paths)))
    except UnavailableError as error:
        raise UnavailableError(f"table {owner.name!r} of shared files: {error}") from error


def drop_stale_pins(instance: Instance, store: StateStore) -> None:
    """Drops the pins of clones that were deleted.

    A clone whose row was lost, perhaps by restoring an older index, still has objects.
    """
    with store.reading() as state:
        pins = state.collection.pins()
    for clone, files in pins:
        if _is_deleted(instance, TableId(clone)):
            store.commit_or_raise(UnpinFiles(clone))
            logger.info("pins of a deleted clone dropped", extra={"table": clone, "files": files})


def _is_deleted(instance: Instance, table_id: TableId) -> bool:
    try:
        instance.tables.index.get(table_id)
    except NotFoundError:
        return next(iter(instance.storage.root.list_objects(f"{table_id}/")), None) is None
    return False


def keeps_pinned_files(instance: Instance, ref: TableRef) -> bool:
    """Returns whether clones need files of a deleted table, and deletes its other data.

    The log stays, because the clones unpin the files there.
    """
    try:
        store = instance.tables.state(ref.id)
        _keep_time_current(instance, store)
        drop_stale_pins(instance, store)
        with store.reading() as state:
            is_pinned = bool(state.collection.pins())
    except NotFoundError:
        return False  # never initialised, or its log is already deleted
    except DataError:
        # The state is damaged, or an earlier deletion removed it after the data.
        if _has_data(instance, ref.id) and _is_needed(instance, ref.id):
            raise
        return False
    if not is_pinned:
        return False
    _delete_unpinned(instance, ref, store)
    return True


def _has_data(instance: Instance, table_id: TableId) -> bool:
    return next(iter(instance.storage.root.list_objects(f"{table_id}/data/")), None) is not None


def _is_needed(instance: Instance, owner_id: TableId) -> bool:
    """Returns whether another table may have files of the owner, whose pins are unreadable."""
    index = instance.tables.index
    if index.list(TableState.CREATING):
        return True
    others = [ref.id for ref in (*index.list(), *index.list(TableState.DELETING))]
    return any(_has_files_of(instance, each, owner_id) for each in others if each != owner_id)


def _has_files_of(instance: Instance, table_id: TableId, owner_id: TableId) -> bool:
    try:
        with instance.tables.state(table_id).reading() as state:
            return bool(state.files.has_files_of(owner_id))
    except NotFoundError:
        return False
    except DataError:
        return _has_data(instance, table_id)


def _keep_time_current(instance: Instance, store: StateStore) -> None:
    """Accepts a jump of time, which would refuse a commit. A deleted table has no job to forget."""
    with store.reading() as state:
        age_ms = instance.clock() - state.time_ms
        is_pinned = bool(state.collection.pins())
    if is_pinned and age_ms > DAY_MS:
        store.commit_or_raise(AcceptTime(instance.clock()))


def _delete_unpinned(instance: Instance, ref: TableRef, store: StateStore) -> None:
    listed = (each.path for each in instance.storage.root.list_objects(f"{ref.id}/data/"))
    while paths := list(islice(listed, _DELETED_AT_ONCE)):
        with store.reading() as state:
            pinned = state.collection.pinned(sorted({data_path(path) for path in paths}))
        unpinned = [path for path in paths if data_path(path) not in pinned]
        if unpinned:
            instance.storage.root.delete(unpinned)
