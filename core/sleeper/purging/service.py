"""Removes deleted rows physically and reports on the objects that held them (design note 13).

Each step is idempotent and durable, so an interrupted purge is simply repeated:

1. *Rewrite.* Files that may hold deleted rows, by their key bounds, are replaced in all partitions
   that refer to them. The output of a job that was assigned before a delete may hold its rows
   too, so this repeats until no such file has a reference.
2. *Systems.* They remove what they keep of the rows outside of the table.
3. *Collect.* The replaced files are deleted when no hold, follower or running query needs them.
4. *Forget.* The horizon passes the deletes, so that the state forgets their regions.
5. *Trim.* New snapshots replace the older ones, the log is trimmed, and the state's file is
   rewritten, because they hold regions of deletes and key bounds of files.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sleeper.compaction.plan import create_rewrite_jobs
from sleeper.errors import SleeperError
from sleeper.files import DataFile, FileReference, StoredObject, owner_id
from sleeper.garbage_collection.collection import find_claims, find_retention, raise_horizon
from sleeper.garbage_collection.orphans import list_unknown
from sleeper.garbage_collection.service import (
    finish_deletions,
    run_garbage_collection,
    run_orphan_collection,
)
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import new_task_id
from sleeper.jobs.queue import QueueName
from sleeper.partitions.region import Region, hull, whole_region
from sleeper.properties.table import COLLECTION_DELAY_MINUTES
from sleeper.purging.kept import (
    count_splits,
    find_claim,
    find_clones,
    list_remains,
    name_table,
    now_ms,
)
from sleeper.purging.report import ObjectState, PurgedObject, PurgeReport
from sleeper.purging.trim import Trim, state_name
from sleeper.reports.output import pluralize
from sleeper.runs.commit import is_committer_behind
from sleeper.runs.retry_policy import LOCAL_RETRY_POLICIES
from sleeper.statestore.reading.delete_queries import Delete
from sleeper.statestore.reading.newest_queries import CollectableFile, UnneededFile
from sleeper.statestore.transactions.collection import CollectFiles
from sleeper.systems import load, systems
from sleeper.tables import TableId
from sleeper.workers.worker import Worker, WorkerSettings

_MINUTE_MS = 60_000
_FIRST_PAUSE_SECONDS = 0.1
_PAUSE_SECONDS_MAX = 10.0
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
    timeout_seconds: float | None = None,
) -> PurgeReport:
    """Removes the rows that are deleted in the regions, by default in all, from the storage.

    With `wait` it repeats its steps until nothing is kept, or until the timeout; otherwise it does
    what is possible now. A local instance's queued compaction jobs run in this process, and
    deletions of tables that can no longer be brought back are finished. InvalidRequestError if a
    row in the regions is not deleted.
    """
    table = instance.table(name)
    if regions:
        from sleeper.purging.undeleted import check_all_deleted

        check_all_deleted(table, regions)
    purge = _begin(table, tuple(regions))
    pause_seconds = _FIRST_PAUSE_SECONDS
    wait_seconds = math.inf if timeout_seconds is None else timeout_seconds
    end_seconds = time.monotonic() + (wait_seconds if wait else 0)
    while True:
        seconds_left = end_seconds - time.monotonic()
        kept = purge.advance(lists_all=seconds_left <= 0)
        if not kept or seconds_left <= 0:
            return purge.report(kept)
        listener(kept[0], len(kept))
        sleep(min(pause_seconds, seconds_left))
        pause_seconds = min(2 * pause_seconds, _PAUSE_SECONDS_MAX)


def _begin(table: OpenTable, regions: tuple[Region, ...]) -> "_Purge":
    with table.state.reading() as state:
        chosen = regions or (whole_region(state.schema),)
        deletes = state.deletes.overlapping(hull(chosen))
        if state.is_snapshot_table and not regions:
            # Older versions that have not expired have the rows too, and no delete of them.
            regions = tuple({delete.region for delete in deletes})
        number = state.number
        splits = count_splits(state, [d.region for d in deletes])
        began_ms = state.moment(table.instance.clock())
    return _Purge(table, regions, number, began_ms, splits, Trim(table))


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A file that may hold deleted rows or keys, and the first number that does not need it."""

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
    trim: Trim
    candidates: dict[str, _Candidate] = field(default_factory=dict)
    of_systems: list[PurgedObject] | None = None

    def advance(self, lists_all: bool) -> list[PurgedObject]:
        """Takes every step that is possible now.

        Returns what is kept. Objects of unfinished runs, which takes a listing of the table, only
        with `lists_all` or if nothing else is kept.
        """
        instance = self.table.instance
        if instance.background is not None:
            instance.background.recover()
        self.table.state.floor.end(self.table.state.holds)
        self._find_key_files()
        kept = self._rewrite()
        if not kept and self.of_systems is None:
            purges = [load(system.purge) for system in systems() if system.purge is not None]
            self.of_systems = [each for purge in purges for each in purge(self.table)]
        kept += self._collect()
        kept += [] if kept else self._forget()
        kept += [] if kept else self.trim.advance()
        return kept + self._list_unfinished() if lists_all or not kept else kept

    def report(self, kept: list[PurgedObject]) -> PurgeReport:
        """Returns the report; what storage still lists is not gone."""
        deleted = [*self._list_deleted(), *(self.of_systems or ()), *self.trim.deleted]
        remains = list_remains(self.table.instance, self.splits)
        return PurgeReport(self.table.ref.name, self.number, (*deleted, *kept, *remains))

    def _find_key_files(self) -> None:
        for number, delete in self._remembered():
            if delete.keys is not None:
                file = delete.keys
                self.candidates[file.path] = _Candidate(file.bytes, file.sidecars, number)

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
            self.candidates |= {f.path: _Candidate(f.bytes, f.sidecars) for f in files}
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
        size = self.candidates[reference.path].bytes
        return PurgedObject(
            reference.path, ObjectState.KEPT, None, size, reason=reason, until_ms=until_ms
        )

    # Collect

    def _collect(self) -> list[PurgedObject]:
        # The first list finds the files that this collection deletes.
        self._waiting()
        if self.table.instance.background is not None:
            # A clone whose deletion is final needs no files any more. Failures, which may be those
            # of other tables, are logged.
            with suppress(SleeperError):
                finish_deletions(self.table.instance)
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
                if each.is_collecting or each.file.path in self.candidates or self._may_hold(each)
            ]
        for each in waiting:
            file = each.file
            self.candidates[file.path] = _Candidate(file.bytes, file.sidecars, each.unreferenced)
        return waiting

    def _note_key_files(self, files: Iterable[CollectableFile]) -> None:
        self.candidates |= {f.path: _Candidate(f.bytes, f.sidecars, f.unreferenced) for f in files}

    def _may_hold(self, each: UnneededFile) -> bool:
        return self._overlaps(each.file) if self.regions else each.has_deleted

    def _describe_unneeded(self, each: UnneededFile) -> PurgedObject:
        delay_ms = self.table.properties().get(COLLECTION_DELAY_MINUTES) * _MINUTE_MS
        reason, until_ms = find_claim(self.table, each.unreferenced)
        clones, clones_until_ms = find_clones(self.table, each.file.path)
        due_ms = each.unreferenced_time_ms + delay_ms
        if each.is_collecting:
            reason, until_ms = _COLLECTING, None
        elif clones is not None:
            reason, until_ms = clones, clones_until_ms
        elif reason is None:
            is_due = now_ms(self.table) >= due_ms
            reason = "its next collection" if is_due else COLLECTION_DELAY_MINUTES.name
            until_ms = None if is_due else due_ms
        return PurgedObject(
            each.file.path, ObjectState.KEPT, each.unreferenced, each.file.bytes, reason, until_ms
        )

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
        reason, until_ms = find_claim(self.table, number)
        return [
            PurgedObject(
                f"{state_name(self.table)}: {pluralize(len(left), 'region')} of deletes",
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
        with store.reading() as state:
            # None if the delay began before the oldest readable version.
            then = state.last_number_at(state.moment(self.table.instance.clock()) - delay_ms)
        if then is not None and then >= number and claims.horizon_max >= number:
            if raise_horizon(store, number, claims):
                return  # by a follower, or a hold in the log, since the claims were read
            if all(hold.version >= number for hold in store.holds.unexpired()):
                store.commit(CollectFiles((), number, claims.cursors, claims.passed))

    # Unfinished runs

    def _list_unfinished(self) -> list[PurgedObject]:
        unknown = self._list_unknown()
        if any(orphan_ms <= now_ms(self.table) for _, orphan_ms in unknown):
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
            self.candidates.setdefault(each.path, _Candidate(each.bytes, ()))
        return unknown

    # Report

    def _list_deleted(self) -> Iterator[PurgedObject]:
        listed = {each.path for each in self._list_objects()}
        for path, item in sorted(self.candidates.items()):
            for name in (path, *(path + suffix for suffix in item.sidecars)):
                size = item.bytes if name == path else None
                if name not in listed:
                    yield PurgedObject(name, ObjectState.GONE, item.number, size)
                elif (owner := owner_id(path)) != self.table.ref.id:
                    reason = f"owned by table {name_table(self.table.instance, TableId(owner))}"
                    yield PurgedObject(name, ObjectState.REMAINS, item.number, size, reason)

    def _list_objects(self) -> Iterator[StoredObject]:
        """Yields the objects of the table, and of those that own files of a clone."""
        for owner in sorted({self.table.ref.id, *map(owner_id, self.candidates)}):
            yield from self.table.instance.storage.root.list_objects(f"{owner}/")


def _first_of_files(references: Iterable[FileReference]) -> list[FileReference]:
    """Returns one reference of each file, if possible one that a job holds."""
    ordered = sorted(references, key=lambda r: (r.path, r.job_id is None, r.partition_id))
    return list({each.path: each for each in reversed(ordered)}.values())[::-1]
