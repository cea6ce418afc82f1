"""Collection of the objects of runs that ended before their commit."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from sleeper.clock import Clock, system_clock
from sleeper.files import SIDECAR_SUFFIXES, StoredObject, parse_run_start
from sleeper.garbage_collection.collection import DeleteObjects
from sleeper.properties.instance import COLLECTION_BATCH_SIZE
from sleeper.properties.values import TableProperties
from sleeper.statestore.fold import DAY_MS
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.collection import BarRuns
from sleeper.tables import TableId

logger = logging.getLogger(__name__)

_LOG = "log"
_COMMITS = "commits"
_LISTED = 1_000
_SNAPSHOT_NAME = re.compile(r"\d{19}-[0-9a-f]+-[0-9a-f]{16}\.db\.zst")


ListObjects = Callable[[TableId], Iterable[StoredObject]]
"""All objects of the table, in any order."""


@dataclass(slots=True)
class OrphanReport:
    """Counts of deleted objects. A dry run deletes none and lists their `paths`."""

    objects: int = 0
    bytes: int = 0
    paths: list[str] = field(default_factory=list)


def collect_orphans(
    table_id: TableId,
    store: StateStore,
    properties: TableProperties,
    list_objects: ListObjects,
    delete: DeleteObjects,
    clock: Clock = system_clock,
    dry_run: bool = False,
) -> OrphanReport:
    """Deletes objects of runs older than the orphan age that are not part of the state.

    An entry bars older runs from committing before the first deletion. Objects are listed before
    the state is read, so a file that is committed in between is found in the state, and any other
    file can never be committed, independent of the clocks of runs and collectors.
    """
    now_ms = clock()
    with store.reading() as state:
        oldest_kept_ms = now_ms - state.orphan_age_ms
        is_log_behind = now_ms - state.time_ms > DAY_MS
    report = OrphanReport()
    if is_log_behind and not dry_run:
        # The entry also keeps the log's time current, so the next commit is no implausible jump.
        store.commit_or_raise(BarRuns(oldest_kept_ms))
    old = (
        each
        for each in list_objects(table_id)
        if _is_collectable_kind(table_id, each.path) and _began_ms(each) < oldest_kept_ms
    )
    for listed in _batches(old, properties.get(COLLECTION_BATCH_SIZE)):
        if not dry_run:
            store.commit_or_raise(BarRuns(oldest_kept_ms))
        orphans = _unknown(store, listed)
        if not dry_run and orphans:
            delete([each.path for each in orphans])
        report.objects += len(orphans)
        report.bytes += sum(each.bytes for each in orphans)
        report.paths += [each.path for each in orphans] if dry_run else []
    if report.objects and not dry_run:
        logger.info("orphans collected", extra={"table": table_id, "objects": report.objects})
    return report


def list_unknown(
    table_id: TableId, store: StateStore, list_objects: ListObjects, before_ms: int
) -> list[tuple[StoredObject, int]]:
    """Returns the objects of runs that began before the time and have not committed.

    Each has the time after which the orphan collection deletes it, unless its run commits.
    """
    old = (
        each
        for each in list_objects(table_id)
        if _is_collectable_kind(table_id, each.path) and _began_ms(each) < before_ms
    )
    unknown = [each for listed in _batches(old, _LISTED) for each in _unknown(store, listed)]
    with store.reading() as state:
        age_ms = state.orphan_age_ms
    return [(each, _began_ms(each) + age_ms) for each in unknown]


def _is_collectable_kind(table_id: TableId, path: str) -> bool:
    """Returns whether an interrupted run may have left the object.

    These are data files, sidecars, bodies of log entries and commits, and torn snapshots.
    """
    if path.startswith(tuple(f"{table_id}/{kind}/" for kind in ("data", _LOG, _COMMITS))):
        return True
    snapshots = f"{table_id}/snapshots/"
    return path.startswith(snapshots) and not _SNAPSHOT_NAME.fullmatch(path[len(snapshots) :])


def _began_ms(each: StoredObject) -> int:
    """Returns the start of the run, or the time of the object if its name has none."""
    began_ms = parse_run_start(each.path)
    return each.modified_ms if began_ms is None else began_ms


def _unknown(store: StateStore, listed: list[StoredObject]) -> list[StoredObject]:
    with store.reading() as state:
        committed = state.files.known(sorted({data_path(each.path) for each in listed}))
    # Commits of runs this old are refused, so their bodies are unneeded.
    bodies = [each.path for each in listed if each.path.split("/")[1] == _LOG]
    if bodies:
        committed |= store.used_bodies(bodies)
    return [each for each in listed if data_path(each.path) not in committed]


def data_path(path: str) -> str:
    """Returns the data file that an object belongs to, by its name."""
    for suffix in SIDECAR_SUFFIXES:
        path = path.removesuffix(suffix)
    return path


def _batches(objects: Iterable[StoredObject], size: int) -> Iterator[list[StoredObject]]:
    iterator = iter(objects)
    while batch := list(islice(iterator, size)):
        yield batch
