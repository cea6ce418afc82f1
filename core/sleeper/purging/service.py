"""Removes deleted rows physically and reports on the objects that held them (design note 13).

Each step is idempotent and durable, so an interrupted purge is simply repeated:

1. *Rewrite.* Files that may hold deleted rows, by their key bounds, are replaced in all partitions
   that refer to them. The output of a job that was assigned before a delete may hold its rows
   too, so this repeats until no such file has a reference.
2. *Collect.* The replaced files are deleted when no hold, follower or running query needs them.
3. *Forget.* The horizon passes the deletes, so that the state forgets their regions.
4. *Trim.* New snapshots replace the older ones, the log is trimmed, and the state's file is
   rewritten, because they hold regions of deletes and key bounds of files.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sleeper.compaction.plan import create_rewrite_jobs
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.files import DataFile, FileReference, StoredObject, owner_id
from sleeper.garbage_collection.collection import find_claims, find_retention
from sleeper.garbage_collection.orphans import list_unknown
from sleeper.garbage_collection.service import run_garbage_collection, run_orphan_collection
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import new_task_id
from sleeper.jobs.queue import QueueName
from sleeper.partitions.region import Region, hull, whole_region
from sleeper.properties.instance import QUERY_TRACKER_DAYS, TRACKER_DAYS
from sleeper.properties.table import COLLECTION_DELAY_MINUTES, HISTORY_RETENTION
from sleeper.purging.report import ObjectState, PurgedObject, PurgeReport
from sleeper.reports.output import pluralize
from sleeper.runs.commit import has_committer, is_committer_behind
from sleeper.runs.retry_policy import LOCAL_RETRY_POLICIES
from sleeper.schema.model import smallest_key_value
from sleeper.statestore.reading.delete_queries import Delete
from sleeper.statestore.reading.newest_queries import CollectableFile, UnneededFile
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.transactions.collection import CollectFiles
from sleeper.statestore.version import PointInTime
from sleeper.tables import TableId
from sleeper.workers.worker import Worker, WorkerSettings

_MINUTE_MS = 60_000
_FIRST_PAUSE_SECONDS = 0.1
_PAUSE_SECONDS_MAX = 10.0
_SNAPSHOTS = 2
_EVERY = 2**63 - 1
_COLLECTING = "it is being collected"
_WORKER = WorkerSettings(
    "purge", (QueueName.COMPACTION,), idle_stop_seconds=0.0, retry_policies=LOCAL_RETRY_POLICIES
)
Listener = Callable[[PurgedObject, int], None]
"""Receives the first object that a purge waits for, and their number."""


def purge_table(
    instance: Instance,
    name: str,
    regions: Sequence[Region] = (),
    wait: bool = False,
    listener: Listener = lambda _object, _count: None,
    sleep: Callable[[float], None] = time.sleep,
) -> PurgeReport:
    """Removes the rows that are deleted in the regions, by default in all, from the storage.

    With `wait` it repeats its steps until nothing is kept; otherwise it does what is possible now.
    A local instance's queued compaction jobs run in this process. InvalidRequestError if a row in
    the regions is not deleted.
    """
    table = instance.table(name)
    if regions:
        from sleeper.purging.undeleted import check_all_deleted

        check_all_deleted(table, regions)
    purge = _begin(table, tuple(regions))
    pause_seconds = _FIRST_PAUSE_SECONDS
    while True:
        kept = purge.advance(lists_all=not wait)
        if not kept or not wait:
            return purge.report(kept)
        listener(kept[0], len(kept))
        sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, _PAUSE_SECONDS_MAX)


def _begin(table: OpenTable, regions: tuple[Region, ...]) -> "_Purge":
    with table.state.reading() as state:
        chosen = regions or (whole_region(state.schema),)
        deletes = state.deletes.overlapping(hull(chosen))
        number = state.number
        splits = _count_splits(state, [d.region for d in deletes])
        began_ms = state.moment(table.instance.clock())
    return _Purge(table, regions, number, began_ms, splits)


@dataclass(frozen=True, slots=True)
class _Found:
    """A file that may hold deleted rows or keys, and the number from which on it is unneeded."""

    bytes: int
    sidecars: tuple[str, ...]
    number: int | None = None


@dataclass(slots=True)
class _Purge:
    """A purge of the deletes up to `number`. `regions` is empty for all of them."""

    table: OpenTable
    regions: tuple[Region, ...]
    number: int
    began_ms: int
    splits: int
    found: dict[str, _Found] = field(default_factory=dict)
    gone: list[PurgedObject] = field(default_factory=list)
    has_snapshots: bool = False
    is_trimmed: bool = False

    def advance(self, lists_all: bool) -> list[PurgedObject]:
        """Takes every step that is possible now.

        Returns what is kept. Objects of unfinished runs, which takes a listing of the table, only
        with `lists_all` or if nothing else is kept.
        """
        instance = self.table.instance
        if instance.background is not None:
            instance.background.recover()
        self._find_key_files()
        kept = self._rewrite()
        kept += self._collect()
        kept += [] if kept else self._forget()
        kept += [] if kept or self.is_trimmed else self._trim()
        return kept + self._list_unfinished() if lists_all or not kept else kept

    def report(self, kept: list[PurgedObject]) -> PurgeReport:
        """Returns the report; what storage still lists is not gone."""
        gone = [*self._list_gone(), *self.gone]
        return PurgeReport(self.table.ref.name, self.number, (*gone, *kept, *self._list_remains()))

    def _find_key_files(self) -> None:
        for number, delete in self._remembered():
            if delete.keys is not None:
                file = delete.keys
                self.found[file.path] = _Found(file.bytes, file.sidecars, number)

    # Rewrite

    def _rewrite(self) -> list[PurgedObject]:
        before: set[FileReference] | None = None
        while True:
            hidden = self._hidden_references()
            if not hidden or hidden == before:
                return [self._describe_reference(each) for each in _first_of_files(hidden)]
            before = hidden
            paths = sorted({each.path for each in hidden})
            create_rewrite_jobs(self.table.instance, self.table.ref, paths)
            if self.table.instance.background is not None:
                Worker(self.table.instance, new_task_id(), threading.Event(), _WORKER).run()

    def _hidden_references(self) -> set[FileReference]:
        with self.table.state.reading() as state:
            files = [f for f in state.deletes.hidden_files(self.number) if self._overlaps(f)]
            self.found |= {f.path: _Found(f.bytes, f.sidecars) for f in files}
            return set(state.files.file_references([file.path for file in files]))

    def _overlaps(self, file: DataFile) -> bool:
        low, high = file.smallest_key, file.largest_key
        return not self.regions or any(r.overlaps_bounds(low, high) for r in self.regions)

    def _describe_reference(self, reference: FileReference) -> PurgedObject:
        reason, until_ms = "it waits for a compaction job", None
        if reference.job_id is not None:
            with self.table.state.reading() as state:
                job = state.jobs.get(reference.job_id)
            reason = f"compaction job {reference.job_id} rewrites it"
            until_ms = job.lease_expiry_ms if job is not None else None
        elif is_committer_behind(self.table.instance):
            reason = "the commit queue has a backlog"
        size = self.found[reference.path].bytes
        return PurgedObject(
            reference.path, ObjectState.KEPT, None, size, reason=reason, until_ms=until_ms
        )

    # Collect

    def _collect(self) -> list[PurgedObject]:
        # The first list finds the files that this collection deletes.
        self._waiting()
        run_garbage_collection(self.table.instance, self.table.ref)
        kept = [self._describe_unneeded(each) for each in self._waiting()]
        with self.table.state.reading() as state:
            key_files = state.collection.collecting_key_files(_EVERY)
        self._note_key_files(key_files)
        return kept + [
            PurgedObject(f.path, ObjectState.KEPT, f.unreferenced, f.bytes, _COLLECTING)
            for f in key_files
        ]

    def _waiting(self) -> list[UnneededFile]:
        with self.table.state.reading() as state:
            waiting = [
                each
                for each in state.collection.unneeded(self.number)
                if each.is_collecting or each.file.path in self.found or self._may_hold(each)
            ]
        for each in waiting:
            file = each.file
            self.found[file.path] = _Found(file.bytes, file.sidecars, each.unreferenced)
        return waiting

    def _note_key_files(self, files: Iterable[CollectableFile]) -> None:
        self.found |= {f.path: _Found(f.bytes, f.sidecars, f.unreferenced) for f in files}

    def _may_hold(self, each: UnneededFile) -> bool:
        return self._overlaps(each.file) if self.regions else each.has_deleted

    def _describe_unneeded(self, each: UnneededFile) -> PurgedObject:
        delay_ms = self.table.properties().get(COLLECTION_DELAY_MINUTES) * _MINUTE_MS
        reason, until_ms = self._find_claim(each.unreferenced)
        due_ms = each.unreferenced_time_ms + delay_ms
        if each.is_collecting:
            reason, until_ms = _COLLECTING, None
        elif clones := self._find_clones(each.file.path):
            reason, until_ms = f"needed by {clones}", None
        elif reason is None:
            is_due = self._now_ms() >= due_ms
            reason = "its next collection" if is_due else COLLECTION_DELAY_MINUTES.name
            until_ms = None if is_due else due_ms
        return PurgedObject(
            each.file.path, ObjectState.KEPT, each.unreferenced, each.file.bytes, reason, until_ms
        )

    def _find_claim(self, number: int) -> tuple[str | None, int | None]:
        """Returns the lowest claim on a version below the number and the end of all, if known."""
        now_ms = self._now_ms()
        followers = [f for f in self.table.state.followers() if f.position < number and not f.lost]
        with self.table.state.reading() as state:
            holds = [
                h for h in state.collection.holds() if h.expiry_ms > now_ms and h.version < number
            ]
        claims = [(h.version, f"hold {h.id} of {h.owner} at version {h.version}") for h in holds]
        claims += [(f.position, f"follower {f.name} at version {f.position}") for f in followers]
        ends_ms = [h.expiry_ms for h in holds]
        retained_ms = find_retention(self.table.properties()).versions_ms
        if retained_ms is not None:
            with self.table.state.reading() as state:
                end_ms = state.at(number).version_time_ms + retained_ms
            if now_ms < end_ms:
                claims.append((number, HISTORY_RETENTION.name))
                ends_ms.append(end_ms)
        if not claims:
            return None, None
        more = f" and {len(claims) - 1:,} more" if len(claims) > 1 else ""
        until_ms = None if followers else max(ends_ms)
        return min(claims)[1] + more, until_ms

    def _find_clones(self, path: str) -> str:
        """Returns the names of the clones that need the file, or an empty text."""
        with self.table.state.reading() as state:
            ids = state.collection.clones_of(path)
        return ", ".join(f"clone {self._name_of(TableId(clone))}" for clone in ids)

    def _name_of(self, table_id: TableId) -> str:
        try:
            return self.table.instance.tables.index.get(table_id).name
        except NotFoundError:
            return table_id

    def _now_ms(self) -> int:
        with self.table.state.reading() as state:
            now_ms: int = state.moment(self.table.instance.clock())
        return now_ms

    # Forget

    def _forget(self) -> list[PurgedObject]:
        remembered = self._remembered()
        if not remembered:
            return []
        number = max(horizon for horizon, _ in remembered)
        self._raise_horizon(number)
        left = self._remembered()
        if not left:
            return self._collect()
        reason, until_ms = self._find_claim(number)
        return [
            PurgedObject(
                f"{self._state_name}: {pluralize(len(left), 'region')} of deletes",
                ObjectState.KEPT,
                number,
                reason=reason or COLLECTION_DELAY_MINUTES.name,
                until_ms=until_ms,
            )
        ]

    def _remembered(self) -> list[tuple[int, Delete]]:
        with self.table.state.reading() as state:
            within = self.regions or (whole_region(state.schema),)
            return [
                (horizon, delete)
                for horizon, delete in state.deletes.remembered(hull(within), self.number)
                if any(delete.region.overlaps(r) for r in within)
            ]

    def _raise_horizon(self, number: int) -> None:
        """Raises the oldest readable version to the number, if no reader may need an older one."""
        store = self.table.state
        retention = find_retention(self.table.properties())
        claims = find_claims(store, self.table.instance.clock(), retention)
        delay_ms = self.table.properties().get(COLLECTION_DELAY_MINUTES) * _MINUTE_MS
        try:
            with store.reading(PointInTime(self._now_ms() - delay_ms, "the delay")) as then:
                is_due = then.version >= number
        except InvalidRequestError:
            is_due = False  # the delay began before the oldest readable version
        if is_due and claims.horizon_max >= number:
            store.commit(CollectFiles((), number, claims.cursors, claims.passed))

    # Unfinished runs

    def _list_unfinished(self) -> list[PurgedObject]:
        unknown = self._list_unknown()
        if any(orphan_ms <= self._now_ms() for _, orphan_ms in unknown):
            run_orphan_collection(self.table.instance, self.table.ref)
            unknown = self._list_unknown()
        return [
            PurgedObject(
                each.path,
                ObjectState.KEPT,
                None,
                each.bytes,
                "a run has not committed it; orphan collection deletes it if the run died",
                orphan_ms,
            )
            for each, orphan_ms in unknown
        ]

    def _list_unknown(self) -> list[tuple[StoredObject, int]]:
        root, table_id = self.table.instance.storage.root, self.table.ref.id
        before_ms = self.began_ms + 1
        unknown = list_unknown(table_id, self.table.state, root.list_objects, before_ms)
        for each, _ in unknown:
            self.found.setdefault(each.path, _Found(each.bytes, ()))
        return unknown

    # Trim

    def _trim(self) -> list[PurgedObject]:
        store = self.table.state
        with store.reading() as state:
            number, horizon = state.number, state.horizon
        if not self.has_snapshots:
            self._save_snapshots(number)
            self.has_snapshots = True
        claims = find_claims(
            store, self.table.instance.clock(), find_retention(self.table.properties())
        )
        number = store.trim(claims.horizon_max)
        # Purged rows and deletes are in transactions up to the horizon.
        if horizon and not store.is_trimmed(horizon):
            reason, until_ms = self._find_claim(horizon + 1)
            name = f"log with transaction {horizon:,}"
            reason = reason or "no two snapshots are valid"
            return [PurgedObject(name, ObjectState.KEPT, horizon, None, reason, until_ms)]
        background = self.table.instance.background
        is_clean = store.vacuum() and (background is None or background.vacuum())
        if not is_clean:
            reason = "another process reads it"
            return [PurgedObject(self._state_name, ObjectState.KEPT, None, None, reason)]
        self.gone += [
            PurgedObject(f"log up to transaction {number:,}", ObjectState.GONE, number),
            PurgedObject(f"{self._state_name}: deleted rows", ObjectState.GONE, number),
        ]
        self.is_trimmed = True
        return []

    def _save_snapshots(self, number: int) -> None:
        """Saves two snapshots, unless there are, because the log is needed from the older on."""
        store = self.table.state
        before = store.snapshots()
        if sum(each.number >= number for each in before) >= _SNAPSHOTS:
            return
        for _ in range(_SNAPSHOTS):
            store.save_snapshot()
        kept = {each.path for each in store.snapshots()}
        self.gone += [
            PurgedObject(each.path, ObjectState.GONE, each.number)
            for each in before
            if each.path not in kept
        ]

    @property
    def _state_name(self) -> str:
        return f"{self.table.ref.id}/state.db"

    # Report

    def _list_gone(self) -> Iterator[PurgedObject]:
        listed = {each.path for each in self._list_objects()}
        for path, found in sorted(self.found.items()):
            for name in (path, *(path + suffix for suffix in found.sidecars)):
                size = found.bytes if name == path else None
                if name not in listed:
                    yield PurgedObject(name, ObjectState.GONE, found.number, size)
                elif owner_id(path) != self.table.ref.id:
                    reason = f"owned by table {self._name_of(TableId(owner_id(path)))}"
                    yield PurgedObject(name, ObjectState.REMAINS, found.number, size, reason)

    def _list_objects(self) -> Iterator[StoredObject]:
        """Yields the objects of the table, and of those that own files of a clone."""
        for owner in sorted({self.table.ref.id, *map(owner_id, self.found)}):
            yield from self.table.instance.storage.root.list_objects(f"{owner}/")

    def _list_remains(self) -> Iterator[PurgedObject]:
        """Yields what may hold purged keys or rows and is not part of the table's storage."""
        instance = self.table.instance
        properties = instance.properties()
        if self.splits:
            reason = "split points of the deleted regions are part of the table's tree"
            yield _remaining(pluralize(self.splits, "partition boundary", "boundaries"), reason)
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


def _first_of_files(references: Iterable[FileReference]) -> list[FileReference]:
    """Returns one reference of each file, if possible one that a job holds."""
    ordered = sorted(references, key=lambda r: (r.path, r.job_id is None, r.partition_id))
    return list({each.path: each for each in reversed(ordered)}.values())[::-1]


def _count_splits(state: TableState, regions: Sequence[Region]) -> int:
    """Returns the number of leaves that begin at a value within one of the regions."""
    first = [smallest_key_value(field) for field in state.schema.row_keys]
    return sum(
        any(
            within.min != low and r.ranges[place].contains(within.min)
            for r in regions
            for place, (within, low) in enumerate(zip(leaf.region.ranges, first, strict=True))
        )
        for leaf in (state.partitions.leaves() if regions else ())
    )
