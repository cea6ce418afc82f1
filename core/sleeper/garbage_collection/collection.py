"""Collects the files of one table that have lost their last reference."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from sleeper.clock import Clock, system_clock
from sleeper.errors import ConflictError
from sleeper.files import owner_id
from sleeper.properties.instance import COLLECTION_BATCH_SIZE
from sleeper.properties.table import (
    COLLECTION_DELAY_MINUTES,
    FOLLOWER_RETENTION,
    HISTORY_RETENTION,
)
from sleeper.properties.values import TableProperties
from sleeper.statestore.holds import Hold
from sleeper.statestore.reading.newest_queries import CollectableFile, Versions
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.collection import CollectFiles, FilesCollected, RaiseHorizon
from sleeper.tables import TableId


@dataclass(frozen=True, slots=True)
class Claims:
    """The limit of the horizon, and `lowest`, the hold, follower or retention that sets it, if any.

    `cursors` are the followers' positions by cursor key, and `passed` the cursor keys of those that
    may be passed, for the entry that collects. `held` are the versions that holds keep.
    """

    horizon_max: int
    lowest: str | None
    cursors: tuple[tuple[str, int], ...]
    passed: tuple[str, ...] = ()
    held: tuple[Versions, ...] = ()


@dataclass(frozen=True, slots=True)
class Retention:
    """How long versions stay readable, and how long followers keep changes; None is no limit.

    Without `versions_ms`, only holds and followers keep old versions.
    """

    versions_ms: int | None = None
    followers_ms: int | None = None


NO_RETENTION = Retention()


def find_retention(properties: TableProperties) -> Retention:
    """Returns the retention of a table."""
    return Retention(properties.get(HISTORY_RETENTION), properties.get(FOLLOWER_RETENTION))


def find_claims(store: StateStore, now_ms: int, retention: Retention = NO_RETENTION) -> Claims:
    """Returns the claims of unexpired holds, of followers, and of the retention.

    Followers of a snapshot table claim nothing: they skip versions that expired.
    """
    followers = store.followers()
    holds = store.holds.unexpired()
    claims = [
        (hold.version, f"hold {hold.id} of {hold.owner} at version {hold.version}")
        for hold in holds
    ]
    with store.reading() as state:
        if state.is_snapshot_table:
            followers = []
        number, held = state.number, held_versions(state, holds)
        if retention.versions_ms is not None:
            version = _oldest_since(state, now_ms - retention.versions_ms)
            claims.append((version, f"{HISTORY_RETENTION.name}, which retains version {version}"))
        versions = state.snapshots.versions()
        if versions:
            oldest = versions[-1].number
            claims.append((oldest, f"version {oldest}, which has not expired"))
        floor = 0
        if retention.followers_ms is not None:
            floor = _oldest_since(state, now_ms - retention.followers_ms)
    passed = tuple(f.cursor_key for f in followers if f.position < floor and not f.is_of_system)
    for follower in followers:
        # A system loses nothing, however long it takes.
        kept = follower.position if follower.is_of_system else max(follower.position, floor)
        claims.append((kept, f"follower {follower.name} at version {follower.position}"))
    cursors = tuple((f.cursor_key, f.position) for f in followers)
    if not claims:
        return Claims(number, None, cursors)
    version, lowest = min(claims)
    return Claims(min(number, version), lowest, cursors, passed, held)


def held_versions(state: TableState, holds: Iterable[Hold]) -> tuple[Versions, ...]:
    """Returns the versions that the holds keep.

    A floor keeps all since its own. A hold keeps those as well, because holds are shared with reads
    of later versions; in a snapshot table, only those of the same load.
    """
    is_whole = not state.is_snapshot_table
    return tuple(
        (h.version, None if is_whole or h.is_floor else state.snapshots.find_end(h.version))
        for h in holds
    )


def raise_horizon(store: StateStore, horizon: int, claims: Claims) -> str | None:
    """Raises the horizon if it is lower. Returns why it cannot be, None if it is raised."""
    with store.reading() as state:
        if horizon <= state.horizon:
            return None
    (outcome,) = store.commit(RaiseHorizon(horizon, claims.cursors, claims.passed))
    return outcome.reason if outcome.refused else None


def leave_held(
    store: StateStore, files: Sequence[CollectableFile], horizon: int
) -> list[CollectableFile]:
    """Returns the files that no hold needs, once the horizon is raised.

    A hold that is not read here was written later, so its reader finds the horizon and gives up.
    """
    holds = store.holds.unexpired()
    with store.reading() as state:
        needed = state.collection.needed([f.path for f in files], held_versions(state, holds))
    # The state forgets versions below the last of the files, but none that a hold keeps.
    lowest = min((hold.version for hold in holds), default=horizon)
    return [
        f
        for f in files
        # Files of expired versions of a snapshot table may be above the horizon.
        if f.path not in needed and not lowest < f.unreferenced <= horizon
    ]


def _oldest_since(state: TableState, time_ms: int) -> int:
    """Returns the version at the time, or the oldest readable one if that is later."""
    number = state.last_number_at(time_ms)
    return int(state.horizon) if number is None else number


def _horizon_after(files: Sequence[CollectableFile], claims: Claims, before: int) -> int:
    """Returns the horizon with which the files can be collected.

    Files of expired versions of a snapshot table do not need it.
    """
    return max([before, *(f.unreferenced for f in files if f.unreferenced <= claims.horizon_max)])


logger = logging.getLogger(__name__)
_MINUTE_MS = 60_000
_REFUSALS_MAX = 10
DeleteObjects = Callable[[list[str]], object]
"""Deletes objects. Missing objects are no error."""

UnpinPaths = Callable[[TableId, list[str]], object]
"""Tells the table that owns the files that the collecting table no longer needs them."""


@dataclass(slots=True)
class CollectionReport:
    """The results of a collection, or the expected results of a dry run.

    `files` and `bytes` count data files, `finished` those of an interrupted earlier collection.
    `blocker` names the hold, follower or retention that keeps a file whose delay has passed.
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
    unpin: UnpinPaths | None = None,
    files_max: int | None = None,
) -> CollectionReport:
    """Deletes collectable files in batches. Idempotent after an interruption.

    Before a file is deleted, the horizon is above all versions that have it, and the holds were
    read again after that (see `sleeper.statestore.holds`).

    `files_max` limits a batch, besides the property.

    Files of other tables, which a clone has, are unpinned there instead of deleted.

    A dry run changes nothing and lists the files.
    """
    with store.reading() as state:
        report = CollectionReport(state.horizon, state.horizon)
    delay_ms = properties.get(COLLECTION_DELAY_MINUTES) * _MINUTE_MS
    batch = properties.get(COLLECTION_BATCH_SIZE)
    batch = batch if files_max is None else min(batch, files_max)
    retention = find_retention(properties)
    collector = _Collector(
        table_id, store, delete, unpin, clock, delay_ms, batch, report, retention
    )
    if dry_run:
        collector.preview()
        return report
    store.floor.end(store.holds)
    store.holds.forget_expired()
    collector.finish_earlier()
    collector.collect()
    if report.files:
        logger.info("garbage collected", extra={"table": table_id, "files": report.files})
    return report


@dataclass(frozen=True, slots=True)
class _Collector:
    table_id: TableId
    store: StateStore
    delete: DeleteObjects
    unpin: UnpinPaths | None
    clock: Clock
    delay_ms: int
    batch: int
    report: CollectionReport
    retention: Retention

    def finish_earlier(self) -> None:
        """Finishes a collection that was interrupted between its steps."""
        while True:
            with self.store.reading() as state:
                files = state.collection.collecting(self.batch)
                files += state.collection.collecting_key_files(self.batch)
            if not files:
                return
            self._delete(files)
            self.report.finished += len(files)

    def collect(self) -> None:
        refusals = 0
        while True:
            claims, files = self._find_collectable(self.batch)
            if not files:
                return
            fault, collected = self._commit(claims, files)
            if fault is not None:
                # A hold or follower has been created since.
                refusals += 1
                if refusals == _REFUSALS_MAX:
                    raise ConflictError(f"nothing could be collected: {fault}")
                continue
            if not collected:
                # Another collector has them; the next collection finishes its remainder.
                return
            with self.store.reading() as state:
                collected += state.collection.collecting_key_files(self.batch)
            self._delete(collected)

    def _commit(
        self, claims: Claims, files: Sequence[CollectableFile]
    ) -> tuple[str | None, list[CollectableFile]]:
        """Raises the horizon and makes files collecting.

        Returns why that failed, and the files, none if another collector has them.
        """
        report, store = self.report, self.store
        horizon = _horizon_after(files, claims, report.horizon_after)
        if fault := raise_horizon(store, horizon, claims):
            return fault, []
        report.horizon_after = max(report.horizon_after, horizon)
        collected = leave_held(store, files, horizon)
        if not collected:
            return "new holds need all files", []
        paths = tuple(f.path for f in collected)
        forgotten = _horizon_after(collected, claims, 0)
        (outcome,) = store.commit(CollectFiles(paths, forgotten, claims.cursors, claims.passed))
        if outcome.refused:
            return outcome.reason, []
        return None, collected if outcome.number is not None else []

    def preview(self) -> None:
        """Reports the files that a collection would delete."""
        everything, report = 2**63 - 1, self.report
        claims, files = self._find_collectable(everything)
        with self.store.reading() as state:
            left = state.collection.collecting(everything)
            left += state.collection.collecting_key_files(everything)
        report.horizon_after = _horizon_after(files, claims, report.horizon_before)
        report.finished = len(left)
        report.files = len(left) + len(files)
        report.bytes = sum(f.bytes for f in left + files)
        report.paths = [f.path for f in left + files]

    def _find_collectable(self, limit: int) -> tuple[Claims, list[CollectableFile]]:
        now_ms = self.clock()
        claims = find_claims(self.store, now_ms, self.retention)
        before_ms, number = now_ms - self.delay_ms, claims.horizon_max
        with self.store.reading() as state:
            files = state.collection.unreferenced(before_ms, limit, number, claims.held)
            is_blocked = state.collection.has_kept(before_ms, number)
        self.report.blocker = claims.lowest if is_blocked else None
        return claims, files

    def _delete(self, files: Sequence[CollectableFile]) -> None:
        foreign = self._unpin([f.path for f in files])
        own = [f for f in files if f.path not in foreign]
        # Sidecars first: the name of the data file identifies its sidecars.
        sidecars = [f.path + suffix for f in own for suffix in f.sidecars]
        self.delete(sidecars + [f.path for f in own])
        self.store.commit_or_raise(FilesCollected(tuple(f.path for f in files)))
        self.report.files += len(files)
        self.report.bytes += sum(f.bytes for f in files)

    def _unpin(self, paths: list[str]) -> set[str]:
        """Unpins the files of other tables and returns them."""
        if self.unpin is None:
            return set()
        foreign: dict[TableId, list[str]] = {}
        for path in paths:
            owner = owner_id(path)
            if owner != self.table_id:
                foreign.setdefault(TableId(owner), []).append(path)
        for owner, owned in foreign.items():
            self.unpin(TableId(owner), owned)
        return {path for owned in foreign.values() for path in owned}
