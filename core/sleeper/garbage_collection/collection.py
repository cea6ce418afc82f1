"""Collects the files of one table that have lost their last reference."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sleeper.clock import Clock, system_clock
from sleeper.errors import ConflictError
from sleeper.properties.instance import COLLECTION_BATCH_SIZE
from sleeper.properties.table import COLLECTION_DELAY_MINUTES
from sleeper.properties.values import TableProperties
from sleeper.statestore.reading.newest_queries import CollectableFile
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.collection import CollectFiles, FilesCollected
from sleeper.tables import TableId


@dataclass(frozen=True, slots=True)
class Claims:
    """The limit of the horizon, and `lowest`, the hold or follower that sets it, if any.

    `cursors` are the followers' positions by cursor key, for the entry that collects.
    """

    horizon_max: int
    lowest: str | None
    cursors: tuple[tuple[str, int], ...]


def find_claims(store: StateStore, now_ms: int) -> Claims:
    """Returns the claims of unexpired holds and of followers."""
    followers = store.followers()
    with store.reading() as state:
        number = state.number
        time_ms = max(now_ms, state.time_ms)
        claims = [
            (hold.version, f"hold {hold.id} of {hold.owner} at version {hold.version}")
            for hold in state.collection.holds()
            if hold.expiry_ms > time_ms
        ]
    claims += [(f.position, f"follower {f.name} at version {f.position}") for f in followers]
    cursors = tuple((f.cursor_key, f.position) for f in followers)
    if not claims:
        return Claims(number, None, cursors)
    version, lowest = min(claims)
    return Claims(min(number, version), lowest, cursors)


logger = logging.getLogger(__name__)
_MINUTE_MS = 60_000
_REFUSALS_MAX = 10
DeleteObjects = Callable[[list[str]], object]
"""Deletes objects. Missing objects are no error."""


@dataclass(slots=True)
class CollectionReport:
    """The results of a collection, or the expected results of a dry run.

    `files` and `bytes` count data files, `finished` those of an interrupted earlier collection.
    `blocker` names the hold or follower that keeps a file whose delay has passed, if any.
    `paths` lists the files in a dry run.
    """

    horizon_before: int
    horizon_after: int
    files: int = 0
    bytes: int = 0
    finished: int = 0
    blocker: str | None = None
    paths: list[str] = field(default_factory=list)


def collect_garbage(
    table_id: TableId,
    store: StateStore,
    properties: TableProperties,
    delete: DeleteObjects,
    clock: Clock = system_clock,
    dry_run: bool = False,
) -> CollectionReport:
    """Deletes collectable files in batches. Idempotent after an interruption.

    A dry run changes nothing and lists the files.
    """
    batch = properties.get(COLLECTION_BATCH_SIZE)
    delay_ms = properties.get(COLLECTION_DELAY_MINUTES) * _MINUTE_MS
    with store.reading() as state:
        report = CollectionReport(state.horizon, state.horizon)
    if dry_run:
        _preview(store, delay_ms, clock, report)
        return report
    _finish_earlier(store, batch, delete, report)
    _collect(store, delay_ms, batch, delete, clock, report)
    if report.files:
        logger.info("garbage collected", extra={"table": table_id, "files": report.files})
    return report


def _finish_earlier(
    store: StateStore, batch: int, delete: DeleteObjects, report: CollectionReport
) -> None:
    while True:
        with store.reading() as state:
            files = state.collection.collecting(batch)
        if not files:
            return
        _delete(store, files, delete, report)
        report.finished += len(files)


def _collect(
    store: StateStore,
    delay_ms: int,
    batch: int,
    delete: DeleteObjects,
    clock: Clock,
    report: CollectionReport,
) -> None:
    refusals = 0
    while True:
        claims, waiting = _read_collectable(store, delay_ms, batch, clock)
        files = [f for f in waiting if f.unreferenced <= claims.horizon_max]
        report.blocker = claims.lowest if len(files) < len(waiting) else None
        if not files:
            return
        horizon = max(f.unreferenced for f in files)
        paths = tuple(f.path for f in files)
        (outcome,) = store.commit(CollectFiles(paths, horizon, claims.cursors))
        if outcome.refused:
            # A hold or follower has been created since.
            refusals += 1
            if refusals == _REFUSALS_MAX:
                raise ConflictError(f"nothing could be collected: {outcome.reason}")
            continue
        report.horizon_after = max(report.horizon_after, horizon)
        if outcome.number is None:
            # Another collector has them; the next collection finishes its remainder.
            return
        _delete(store, files, delete, report)


def _read_collectable(
    store: StateStore, delay_ms: int, batch: int, clock: Clock
) -> tuple[Claims, list[CollectableFile]]:
    now_ms = clock()
    claims = find_claims(store, now_ms)
    with store.reading() as state:
        return claims, state.collection.unreferenced(now_ms - delay_ms, batch)


def _delete(
    store: StateStore,
    files: Sequence[CollectableFile],
    delete: DeleteObjects,
    report: CollectionReport,
) -> None:
    # Sidecars first: the name of the data file identifies its sidecars.
    delete([f.path + suffix for f in files for suffix in f.sidecars] + [f.path for f in files])
    store.commit_or_raise(FilesCollected(tuple(f.path for f in files)))
    report.files += len(files)
    report.bytes += sum(f.bytes for f in files)


def _preview(store: StateStore, delay_ms: int, clock: Clock, report: CollectionReport) -> None:
    everything = 2**63 - 1
    claims, waiting = _read_collectable(store, delay_ms, everything, clock)
    files = [f for f in waiting if f.unreferenced <= claims.horizon_max]
    report.blocker = claims.lowest if len(files) < len(waiting) else None
    with store.reading() as state:
        left = state.collection.collecting(everything)
    report.horizon_after = max([report.horizon_before, *(f.unreferenced for f in files)])
    report.finished = len(left)
    report.files = len(left) + len(files)
    report.bytes = sum(f.bytes for f in left + files)
    report.paths = [f.path for f in left + files]
