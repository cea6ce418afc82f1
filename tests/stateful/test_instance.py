"""A real instance against a model: ingest, shape, collect, hold, follow, query, crash, reopen.

`SLEEPER_TEST_EXAMPLES` (`tests/examples.py`) and `SLEEPER_STATEFUL_STEPS` make it longer, and with
`SLEEPER_STATEFUL_SHRINK` it looks for the shortest history that fails. A failure prints the
steps, and the blob that repeats them.
"""

import contextlib
import itertools
import json
import os
import shutil
import tempfile
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from sleeper.admin.clone import clone_table
from sleeper.admin.schema import change_schema
from sleeper.admin.tables import create_table, delete_table
from sleeper.admin.versions import reinitialise_table, restore_table, undo_job
from sleeper.backup.place import open_place_to_read
from sleeper.backup.restore import restore
from sleeper.backup.run import back_up
from sleeper.clock import system_clock
from sleeper.compaction.plan import create_table_jobs
from sleeper.compaction.service import run_compaction_message
from sleeper.deletion.keys import delete_key_rows, delete_rows
from sleeper.errors import InvalidRequestError, NotFoundError, StateMovedOnError
from sleeper.files import DataFile
from sleeper.garbage_collection.service import (
    collect_table,
    collect_table_orphans,
    expire_table_versions,
    finish_deletions,
    snapshot_table,
    sweep_abandoned,
)
from sleeper.ingest.run import IngestProgress
from sleeper.ingest.service import ingest_paths, ingest_rows, run_ingest_job, submit_ingest
from sleeper.instance import Instance
from sleeper.jobs.ingest_job import INGEST_JOBS
from sleeper.jobs.queue import QueueName
from sleeper.jobs.status import JobState
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.partitions.region import Range, Region, whole_region
from sleeper.processing.field_changes import AddField, DropField
from sleeper.purging.report import ObjectState
from sleeper.purging.service import purge_table
from sleeper.query.changes.reader import ChangeReader, ChangesRequest
from sleeper.query.changes.service import open_changes
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.schema.model import Field, PrimitiveType
from sleeper.splitting.find import SentSplit, send_splits
from sleeper.splitting.service import run_split_message
from sleeper.statestore.reading.delete_queries import Delete, find_deleted
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.transactions.change_schema import ChangeSchema
from sleeper.statestore.transactions.codec import kinds_of
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.holds import (
    CreateFollower,
    CreateHold,
    DeleteFollower,
    ReleaseHold,
    RenewHold,
)
from sleeper.statestore.transactions.restore import ReinitialiseTable, RestoreVersion, UndoJob
from sleeper.statestore.transactions.table_definition import AcceptTime
from sleeper.statestore.transactions.transaction import Subject
from sleeper.statestore.version import PointInTime, Version
from sleeper.workers.worker import Worker
from tests.clock import FakeClock
from tests.examples import examples
from tests.stateful.crashing import Crash, CrashPlan, make_crashing
from tests.stateful.model import (
    DELETE,
    ModelClone,
    ModelCopy,
    ModelDelete,
    ModelField,
    ModelJob,
    ModelRestore,
    ModelTable,
    ModelUndo,
    Row,
)

T = TypeVar("T")

NAME = "rows"
SCHEMA = json.dumps(
    {
        "rowKeyFields": [{"name": "k", "type": "IntType"}],
        "sortKeyFields": [{"name": "s", "type": "LongType"}],
        "valueFields": [{"name": "v", "type": "StringType"}],
    }
)
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
PROPERTIES = {
    "sleeper.queue.receives.max": "1000",
    "sleeper.compaction.job.max.retries": "500",
    "sleeper.compaction.queue.visibility.timeout.seconds": "2",
    "sleeper.compaction.lease.seconds": "1200",
    "sleeper.engine.threads": "1",
}

CHOICES = {
    "append": {},
    "latest": {"sleeper.table.rows": "latest"},
    "latest by": {"sleeper.table.rows": "latest", "sleeper.table.latest.by": "v"},
    "snapshot": {"sleeper.table.type": "snapshot"},
}

keys = st.integers(-20, 20) | st.integers(-(2**31), 2**31 - 1)
rows = st.lists(st.tuples(keys, st.integers(0, 3), st.text("aéz", max_size=2)), max_size=25)
crash = st.none() | st.integers(1, 25)
times = st.sampled_from([1, MINUTE_MS, 16 * MINUTE_MS, 61 * MINUTE_MS, 61 * MINUTE_MS, 3 * DAY_MS])


# What is drawn must not depend on the instance, whose threads make it differ from run to run.
picks = st.integers(0, 9_999)


class InstanceMachine(RuleBasedStateMachine):
    """One table of an instance: created, used, deleted and created again."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="sleeper-stateful-"))
        create_local_instance(self.folder / "instance", "stateful", PROPERTIES)
        self.clock = FakeClock(system_clock())
        self.plan = CrashPlan()
        self.model: ModelTable | None = None
        self.contents: dict[str, list[tuple[int | None, Row]]] = {}
        self.collected: set[str] = set()
        self.clones: dict[str, ModelClone] = {}
        self.clones_made = 0
        self.open()

    # -- the instance as a process sees it

    def open(self) -> None:
        self.raw = open_local_instance(self.folder / "instance", self.clock)
        original = self.plan.sent
        self.plan = CrashPlan(sent=original)
        self.instance = make_crashing(self.raw, self.plan)

    def attempt(self, crash_at: int | None, action: Callable[[Instance], Any]) -> Any:
        """Returns the action's result, or None if the process crashed and was restarted."""
        self.plan.left = crash_at
        try:
            return action(self.instance)
        except Crash:
            self.raw.close()
            self.open()
            return None
        finally:
            self.plan.left = None
            self.note_commits()

    def note_commits(self) -> None:
        if self.model is None:
            return
        with self.raw.tables.state(self.model.id).reading() as state:
            for job_id, job in self.model.jobs.items():
                applied = state.jobs.added_files(job_id)
                if applied is not None:
                    assert job.number in (None, applied.number)
                    job.number, job.committed_ms = applied.number, applied.time_ms
            kinds = (RestoreVersion.kind, UndoJob.kind, ReinitialiseTable.kind)
            changes: list[tuple[str, Any, Sequence[str]]] = [
                *((i, each, (DeleteRows.kind,)) for i, each in self.model.deletes.items()),
                *((i, each, (ChangeSchema.kind,)) for i, each in self.model.field_changes.items()),
                *((i, each, kinds) for i, each in self.model.replacements.items()),
            ]
            for change_id, change, its_kinds in changes:
                for kind in its_kinds:
                    applied = state.jobs.applied(change_id, kind)
                    if applied is not None:
                        change.number = applied.number
            self.note_expiries(state)

    def note_expiries(self, state: TableState) -> None:
        """Records the versions that expired since, which must have been due."""
        versions = {version.number for version in state.snapshots.versions()}
        expired = set(self.model.live()) - versions
        assert versions <= set(self.model.live())
        if expired:
            assert expired <= set(self.due_versions())
            history = state.history.newest(100_000, shows_all=True).entries
            number = max(each.number for each in history if each.operation == "expire versions")
            self.model.expired |= dict.fromkeys(expired, number)

    def due_versions(self) -> list[int]:
        """Returns the versions that may expire now: their policy and no hold keeps them."""
        times = self.entry_times()
        due = []
        for place, number in enumerate(self.model.live()):
            end = self.model.end(number)
            is_old = self.ttl_ms is None or times[number] + self.ttl_ms <= self.clock()
            is_held = any(number <= each and (end is None or each < end) for each in self.held())
            if place >= self.versions_min and is_old and not is_held:
                due.append(number)
        return due

    def held(self) -> list[int]:
        """Returns the versions of holds that have not expired."""
        holds = self.model.holds.values()
        return [version for version, expiry_ms in holds if expiry_ms > self.clock()]

    def entry_times(self) -> dict[int, int]:
        with self.state.reading() as state:
            return {
                each.number: each.time_ms
                for each in state.history.newest(100_000, shows_all=True).entries
            }

    def fault(self, version: int) -> str | None:
        """Returns a pattern of the error of a version that is not readable, None if it is."""
        if version < max(1, self.horizon()):
            return "oldest readable version"
        if self.model.is_expired(version):
            return f"version {version} is no longer readable: snapshot version .* expired at"
        return None

    def rows_fault(self, version: int | None) -> str | None:
        """Returns a pattern of the error of a query of the version, None if it has rows."""
        number = self.number() if version is None else version
        fault = self.fault(number)
        return fault or (
            None if self.model.has_snapshot(number) else "there is no (snapshot|version)"
        )

    @property
    def state(self) -> Any:
        assert self.model is not None
        return self.raw.tables.state(self.model.id)

    # -- the table

    @initialize(
        points=st.lists(st.integers(-15, 15), max_size=3, unique=True).map(sorted),
        strategy=st.sampled_from(["one_file_per_leaf", "one_reference_per_leaf"]),
        threshold=st.integers(5, 60),
        batch=st.integers(2, 4),
        retention=st.sampled_from(["", "", "90m"]),
        follower_retention=st.sampled_from(["", "", "3h"]),
        choice=st.sampled_from(
            [os.environ["SLEEPER_STATEFUL_CHOICE"]]
            if "SLEEPER_STATEFUL_CHOICE" in os.environ
            else sorted(CHOICES)
        ),
        ttl=st.sampled_from(["", "", "90m"]),
        versions_min=st.sampled_from(["", "1", "3"]),
    )
    def make_table(
        self,
        points: list[int],
        strategy: str,
        threshold: int,
        batch: int,
        retention: str,
        follower_retention: str,
        choice: str,
        ttl: str,
        versions_min: str,
    ) -> None:
        self.choice = choice
        self.ttl_ms = 90 * MINUTE_MS if ttl else None
        self.versions_min = int(versions_min or (not ttl))
        versions = {
            "sleeper.table.snapshot.ttl": ttl,
            "sleeper.table.snapshot.min.versions": versions_min,
        }
        self.retention_ms = 90 * MINUTE_MS if retention else 0
        self.follower_retention_ms = 180 * MINUTE_MS if follower_retention else None
        self.make = lambda instance: create_table(
            instance,
            NAME,
            SCHEMA,
            {
                "sleeper.table.partition.splitting.threshold": str(threshold),
                "sleeper.table.ingest.file.writing.strategy": strategy,
                "sleeper.table.compaction.files.batch.size": str(batch),
                "sleeper.table.gc.delay.minutes": "0",
                "sleeper.table.history.retention": retention,
                "sleeper.table.follower.retention": follower_retention,
                "sleeper.table.parquet.rowgroup.rows.max": "1000",
                **CHOICES[choice],
                **(versions if choice == "snapshot" else {}),
            },
            points,
        )
        self.made(self.make(self.instance))

    def made(self, ref: Any) -> None:
        self.model = ModelTable(ref.id, self.choice)

    @property
    def op_column(self) -> str | None:
        return "op" if self.is_latest else None

    @property
    def is_latest(self) -> bool:
        return self.choice in ("latest", "latest by")

    @property
    def is_snapshot(self) -> bool:
        return self.choice == "snapshot"

    def table(self, rows: list[Row]) -> pa.Table:
        table = _table(rows)
        return table if self.op_column is None else table.append_column("op", [_operations(rows)])

    @rule(crash_at=crash, again_at=crash)
    def delete_and_make_again(self, crash_at: int | None, again_at: int | None) -> None:
        self.attempt(crash_at, lambda instance: delete_table(instance, NAME, now=True))
        try:
            self.raw.tables.index.find(NAME)
            return  # it died before
        except NotFoundError:
            self.model = None
        self.attempt(crash_at, lambda instance: finish_deletions(instance))
        self.attempt(again_at, self.make)
        try:
            ref = self.raw.tables.index.find(NAME)
        except NotFoundError:
            ref = self.make(self.instance)
        self.made(ref)

    # -- ingest

    def source(self, rows: list[Row], kind: int) -> str:
        stem = self.folder / uuid.uuid4().hex
        listed = self.table(rows).to_pylist()
        if kind == 0:
            path = stem.with_suffix(".parquet")
            pq.write_table(self.table(rows), path, row_group_size=7)
        elif kind == 1:
            path = stem.with_suffix(".csv")
            columns = ["v", "s", "k", *([self.op_column] if self.op_column else [])]
            lines = (f'"{r["v"]}",' + ",".join(str(r[c]) for c in columns[1:]) for r in listed)
            path.write_text("\n".join([",".join(columns), *lines, ""]))
        else:
            path = stem.with_suffix(".jsonl")
            path.write_text("".join(json.dumps(row) + "\n" for row in listed))
        return str(path)

    def add_job(self, rows: list[Row], kinds: list[int]) -> str:
        job_id = uuid.uuid4().hex
        rows_per_kind = -(-len(rows) // len(kinds)) or 1
        files = tuple(
            self.source(rows[place * rows_per_kind : (place + 1) * rows_per_kind], kind)
            for place, kind in enumerate(kinds)
        )
        assert self.model is not None
        self.model.jobs[job_id] = ModelJob(list(rows), files)
        return job_id

    @rule(
        rows=rows,
        kinds=st.lists(st.integers(0, 2), min_size=1, max_size=2),
        crash_at=crash,
        overtaken=st.booleans(),
    )
    def ingest(
        self, rows: list[Row], kinds: list[int], crash_at: int | None, overtaken: bool
    ) -> None:
        job_id = self.add_job(rows, kinds)
        files = self.model.jobs[job_id].files

        def overtake(_: int) -> None:
            if overtaken:
                ingest_paths(self.raw, NAME, files, job_id, op_column=self.op_column)

        progress = IngestProgress(rows_written=overtake)
        result = self.attempt(
            crash_at,
            lambda i: ingest_paths(
                i, NAME, files, job_id, progress=progress, op_column=self.op_column
            ),
        )
        if result is not None:
            # The other run of the job committed while this one wrote its rows.
            is_late = overtaken and bool(rows)
            written = 0 if is_late else self.model.written(rows).total()
            assert (result.rows, result.done_before) == (written, is_late)
            assert self.model.jobs[job_id].number == result.number

    @rule(early=rows, late=rows, crash_at=crash)
    def overlap(self, early: list[Row], late: list[Row], crash_at: int | None) -> None:
        """A load begins and publishes while another one reads its rows, which is refused."""
        if not self.is_snapshot:
            return
        early_id, late_id = uuid.uuid4().hex, uuid.uuid4().hex

        def batches() -> Iterator[pa.RecordBatch]:
            self.model.jobs[late_id] = ModelJob(list(late))
            ingest_rows(self.raw, NAME, self.table(late).to_batches(), late_id)
            yield from self.table(early).to_batches()

        with contextlib.suppress(InvalidRequestError):
            self.attempt(crash_at, lambda i: ingest_rows(i, NAME, batches(), early_id))
        self.note_commits()
        with self.state.reading() as state:
            assert state.jobs.added_files(early_id) is None

    @rule(crash_at=crash)
    def expire(self, crash_at: int | None) -> None:
        if self.is_snapshot:
            self.attempt(crash_at, lambda i: expire_table_versions(i, NAME))
            report = expire_table_versions(self.raw, NAME)
            self.note_commits()
            # A process that crashed may have left a hold.
            held = {each.version.number for each in report.held if each.holds}
            assert set(self.due_versions()) <= held

    @rule(rows=rows, crash_at=crash)
    def ingest_from_python(self, rows: list[Row], crash_at: int | None) -> None:
        job_id = uuid.uuid4().hex
        self.model.jobs[job_id] = ModelJob(list(rows))
        batches = self.table(rows).to_batches(max_chunksize=5)
        result = self.attempt(
            crash_at,
            lambda i: ingest_rows(i, NAME, batches, job_id, op_column=self.op_column),
        )
        assert result is None or result.rows == self.model.written(rows).total()

    @rule(pick=picks, crash_at=crash)
    def bring_a_job_again(self, pick: int, crash_at: int | None) -> None:
        job_id = _picked(self.file_jobs(), pick)
        if job_id is None:
            return
        job = self.model.jobs[job_id]
        was_done = job.number is not None
        try:
            result = self.attempt(
                crash_at,
                lambda i: ingest_paths(i, NAME, job.files, job_id, op_column=self.op_column),
            )
        except InvalidRequestError as error:
            self.check_overtaken(job_id, str(error))
            return
        assert result is None or result.done_before == was_done

    def check_overtaken(self, job_id: str, reason: str) -> None:
        assert self.is_snapshot
        assert self.model.jobs[job_id].number is None
        assert "which began later" in reason

    @rule(pick=picks)
    def bring_other_files_under_a_used_id(self, pick: int) -> None:
        used = [j for j in self.file_jobs() if self.model.jobs[j].number is not None]
        job_id = _picked(used, pick)
        if job_id is None:
            return
        other = self.source([(1, 1, "other")], 0)
        with pytest.raises(InvalidRequestError, match=f"{job_id} was used by transaction"):
            ingest_paths(self.instance, NAME, [other], job_id)

    def file_jobs(self) -> list[str]:
        """Jobs of files that may come again: ids are kept for thirty days.

        Not those that wait in the queue, which has to bring them by itself.
        """
        remaining, message = self.clock() - 29 * DAY_MS, self.sent_jobs()
        return [
            job_id
            for job_id, job in self.model.jobs.items()
            if job.files
            and (job_id not in message if job.number is None else job.committed_ms > remaining)
        ]

    def sent_jobs(self) -> set[str]:
        return {json.loads(body)["id"] for queue, body in self.plan.sent if queue == "ingest"}

    @rule(
        rows=rows,
        kind=st.integers(0, 2),
        crash_at=crash,
        times=st.integers(1, 2),
        worker_crash_at=crash,
    )
    def submit(
        self,
        rows: list[Row],
        kind: int,
        crash_at: int | None,
        times: int,
        worker_crash_at: int | None,
    ) -> None:
        job_id = self.add_job(rows, [kind])
        files = self.model.jobs[job_id].files
        for _ in range(times):
            self.attempt(crash_at, lambda i: submit_ingest(i, NAME, files, job_id, self.op_column))
        self.work(worker_crash_at, times)

    # -- fields

    @rule(
        name=st.sampled_from("ab"),
        default=st.none() | st.integers(0, 3),
        crash_at=crash,
        times=st.integers(1, 2),
    )
    def add_or_drop_field(
        self, name: str, default: int | None, crash_at: int | None, times: int
    ) -> None:
        is_dropped = name in self.model.added_fields(self.number())
        new = Field(name, PrimitiveType.INT, default=default)
        change_id = uuid.uuid4().hex
        change = DropField(name) if is_dropped else AddField(new)
        self.model.field_changes[change_id] = ModelField(name, default, is_dropped)
        for _ in range(times):
            self.attempt(crash_at, lambda i: change_schema(i, NAME, [change], change_id))

    # -- deletes

    @rule(low=keys, width=st.none() | st.integers(1, 12), crash_at=crash, times=st.integers(1, 2))
    def delete_range(self, low: int, width: int | None, crash_at: int | None, times: int) -> None:
        high = None if width is None else min(low + width, 2**31 - 1)
        if high is not None and high <= low:
            return
        delete_id = uuid.uuid4().hex
        self.model.deletes[delete_id] = ModelDelete(low, high)
        region = Region((Range(low, high),))
        for _ in range(times):
            result = self.attempt(crash_at, lambda i: delete_rows(i, NAME, [region], delete_id))
            if result is not None:
                assert result.number == self.model.deletes[delete_id].number

    @rule(deleted=st.lists(keys, min_size=1, max_size=12), crash_at=crash, times=st.integers(1, 2))
    def delete_keys(self, deleted: list[int], crash_at: int | None, times: int) -> None:
        delete_id = uuid.uuid4().hex
        self.model.deletes[delete_id] = ModelDelete(0, 0, keys=frozenset(deleted))
        batch = pa.record_batch({"k": pa.array(deleted, pa.int32())})
        for _ in range(times):
            result = self.attempt(
                crash_at, lambda i: delete_key_rows(i, NAME, [batch], delete_id=delete_id)
            )
            if result is not None:
                assert result.number == self.model.deletes[delete_id].number

    # -- restores and undos

    @rule(pick=picks, crash_at=crash, times=st.integers(1, 2))
    def restore(self, pick: int, crash_at: int | None, times: int) -> None:
        version, restore_id = self.version(pick), uuid.uuid4().hex
        if fault := self.rows_fault(version):
            with pytest.raises(InvalidRequestError, match=fault):
                restore_table(self.instance, NAME, version)
            return
        self.model.replacements[restore_id] = ModelRestore(version)
        for _ in range(times):
            result = self.attempt(crash_at, lambda i: restore_table(i, NAME, version, restore_id))
            if result is not None:
                assert result.number == self.model.replacements[restore_id].number
                if result.number is None:
                    break  # it is the newest

    @rule(crash_at=crash)
    def reinitialise(self, crash_at: int | None) -> None:
        request_id = uuid.uuid4().hex
        self.model.replacements[request_id] = ModelRestore(0)
        self.attempt(crash_at, lambda i: reinitialise_table(i, NAME, request_id))

    @rule(pick=picks, crash_at=crash)
    def undo(self, pick: int, crash_at: int | None) -> None:
        ids = [
            i for i, job in self.model.jobs.items() if job.committed_ms > self.clock() - 29 * DAY_MS
        ]
        job_id = _picked(ids, pick)
        if job_id is None:
            return
        undo_id, before = uuid.uuid4().hex, self.model.rows()
        self.model.replacements[undo_id] = ModelUndo(job_id)
        try:
            result = self.attempt(crash_at, lambda i: undo_job(i, job_id, NAME, undo_id))
        except InvalidRequestError as error:
            self.check_undo_refusal(job_id, str(error))
            return
        if result is not None and result.number is None:
            self.model.replacements[undo_id].number = self.number()
            assert self.model.rows() == before
            del self.model.replacements[undo_id]

    def check_undo_refusal(self, job_id: str, reason: str) -> None:
        number = self.model.jobs[job_id].number
        assert number is not None
        if self.is_snapshot:
            assert "loads replace all rows" in reason
            return
        with self.state.reading() as state:
            history = state.history.newest(100_000, shows_all=True).entries
        if "a compaction has merged" in reason:
            assert any(e.operation == "compaction" and e.number > number for e in history)
        else:
            assert "and collected" in reason
            assert self.horizon() > number

    @rule(crash_at=crash, times=st.integers(1, 2))
    def purge(self, crash_at: int | None, times: int) -> None:
        for _ in range(times - 1):
            self.attempt(crash_at, lambda i: purge_table(i, NAME))
        report = purge_table(self.raw, NAME)
        self.note_commits()
        if report.is_complete:
            # Older versions of a snapshot table have the rows that loads replaced.
            is_replaced = any(each.number for each in self.model.replacements.values())
            if not is_replaced and not self.is_snapshot:
                assert self.stored_rows() <= self.model.undeleted()
            with self.state.reading() as state:
                assert not state.deletes.remembered(whole_region(state.schema), state.number)
        else:
            assert any(o.reason for o in report.objects if o.state is ObjectState.KEPT)

    def stored_rows(self) -> set[Row]:
        """The rows that any data file on disk holds."""
        data = self.folder / "instance" / self.model.id / "data"
        paths = [p.relative_to(self.folder / "instance") for p in data.rglob("*.parquet")]
        return {row for path in paths for row in self.read_rows(path.as_posix())}

    # -- clones

    @rule(pick=picks, crash_at=crash, again_at=crash, of_clone=st.booleans())
    def clone(self, pick: int, crash_at: int | None, again_at: int | None, of_clone: bool) -> None:
        if len(self.clones) == 3:
            return
        self.clones_made += 1
        name = f"clone-{self.clones_made}"
        source = _picked(sorted(self.clones), pick) if of_clone else None
        version = None if source else self.version(pick)
        fault = None if version is None else self.fault(version)
        if fault is not None:
            with pytest.raises(InvalidRequestError, match=fault):
                clone_table(self.instance, NAME, name, version)
            return
        number = self.number() if version is None else version
        has_snapshot = self.model.has_snapshot(number)
        if source is not None:
            has_snapshot = self.clones[source].has_snapshot
        content = self.clones[source].content if source else self.model.numbered(version)
        fields = self.added_fields(self.number() if version is None else version, source or NAME)
        for each in (crash_at, again_at, None):
            self.attempt(each, lambda i: clone_table(i, source or NAME, name, version))
            with contextlib.suppress(NotFoundError):
                ref = self.raw.tables.index.find(name)
                self.clones[name] = ModelClone(ref.id, list(content), fields, has_snapshot)
                return

    @rule(pick=picks, rows=rows, crash_at=crash)
    def change_clone(self, pick: int, rows: list[Row], crash_at: int | None) -> None:
        name = _picked(sorted(self.clones), pick)
        if name is None:
            return
        batches = self.table(rows).to_batches()
        result = ingest_rows(self.raw, name, batches, uuid.uuid4().hex, op_column=self.op_column)
        clone = self.clones[name]
        before = [] if self.is_snapshot else clone.content
        clone.content = before + [(result.number or 0, row) for row in rows]
        clone.has_snapshot = True
        ref = self.raw.tables.index.find(name)
        self.attempt(crash_at, lambda i: create_table_jobs(i, ref, True))
        self.work(None, 4)
        self.attempt(crash_at, lambda i: collect_table(i, name))
        assert self.queried(None, name) == self.model.visible(clone.content)

    @rule(pick=picks, crash_at=crash)
    def delete_clone(self, pick: int, crash_at: int | None) -> None:
        name = _picked(sorted(self.clones), pick)
        if name is not None:
            delete_table(self.raw, name, now=True)
            del self.clones[name]
            self.attempt(crash_at, lambda i: finish_deletions(i))

    @invariant()
    def clones_have_their_files(self) -> None:
        for name, clone in self.clones.items():
            with self.raw.tables.state(clone.id).reading() as state:
                for path in state.files.paths():
                    assert (self.folder / "instance" / path).exists(), (name, path)

    # -- background work

    @rule(crash_at=crash, count=st.integers(1, 4))
    def work_on(self, crash_at: int | None, count: int) -> None:
        self.work(crash_at, count)

    def work(self, crash_at: int | None, count: int) -> None:
        for _ in range(count):
            if not self.attempt(crash_at, _run_one):
                return

    @rule(pick=picks, crash_at=crash)
    def deliver_an_old_message_again(self, pick: int, crash_at: int | None) -> None:
        queue, body = _picked(self.plan.sent, pick) or ("", "")
        if not body:
            return
        if queue == "ingest" and json.loads(body)["id"] not in self.file_jobs():
            return
        run: Callable[[Instance], Any] = {
            "ingest": lambda i: run_ingest_job(i, INGEST_JOBS.parse(body, "m")),
            "compaction": lambda i: run_compaction_message(i, body),
            "splitting": lambda i: run_split_message(i, body),
        }[queue]
        # It may be a job that was released, or one of the table before.
        with contextlib.suppress(StateMovedOnError, NotFoundError, InvalidRequestError):
            self.attempt(crash_at, run)

    @rule(full=st.booleans(), crash_at=crash)
    def create_compaction_jobs(self, full: bool, crash_at: int | None) -> None:
        ref = self.raw.tables.index.find(NAME)
        self.attempt(crash_at, lambda i: create_table_jobs(i, ref, full))

    @rule(
        rows=rows,
        crash_at=crash,
        count=st.integers(1, 6),
        collect_crash_at=crash,
        lost=st.booleans(),
    )
    def ingest_compact_and_collect(
        self,
        rows: list[Row],
        crash_at: int | None,
        count: int,
        collect_crash_at: int | None,
        lost: bool,
    ) -> None:
        for _ in range(2):
            self.ingest_from_python(rows, None)
        self.create_compaction_jobs(full=True, crash_at=None)
        if lost:
            self.lose_a_compaction_message()
        self.work(crash_at, count)
        self.collect(collect_crash_at)

    @rule()
    def lose_a_compaction_message(self) -> None:
        """Deletes a message, as operators may delete a dead letter: its files must be released."""
        queue = self.raw.jobs.queue(QueueName.COMPACTION)
        for message in queue.receive():
            queue.delete(message.receipt)

    @rule(crash_at=crash)
    def find_splits(self, crash_at: int | None) -> None:
        ref = self.raw.tables.index.find(NAME)
        self.attempt(crash_at, lambda i: send_splits(i, ref, {}, self.number()))

    @rule(crash_at=crash)
    def collect(self, crash_at: int | None) -> None:
        self.collected |= set(collect_table(self.raw, NAME, dry_run=True).paths)
        report = self.attempt(crash_at, lambda i: collect_table(i, NAME))
        if report is not None:
            for path in self.collected:
                assert not (self.folder / "instance" / path).exists(), path

    @rule(crash_at=crash)
    def collect_orphans(self, crash_at: int | None) -> None:
        self.attempt(crash_at, lambda i: collect_table_orphans(i, NAME))

    @rule()
    def snapshot(self) -> None:
        snapshot_table(self.raw, self.raw.tables.index.find(NAME), always=True)

    @rule(time_ms=times)
    def pass_time(self, time_ms: int) -> None:
        self.clock.now_ms += time_ms

    @rule()
    def reopen(self) -> None:
        self.raw.close()
        self.open()

    # -- backup

    @rule(crash_at=crash, is_all=st.booleans())
    def back_up_and_restore(self, crash_at: int | None, is_all: bool) -> None:
        place = str(self.folder / "backups")
        names = () if is_all else (NAME,)
        result = self.attempt(crash_at, lambda i: back_up(i, place, names, keep=2))
        if result is None:
            return
        target = self.folder / uuid.uuid4().hex
        create_local_instance(target, "stateful", PROPERTIES)
        restored = open_local_instance(target, self.clock)
        try:
            done = restore(restored, open_place_to_read(place), result.id)
            assert not [fault for table in done.tables for fault in table.faults]
            for table in result.tables:
                is_clone = table.name in self.clones
                if is_clone and not self.clones[table.name].has_snapshot:
                    continue
                if not is_clone and not self.model.has_snapshot(table.number):
                    continue
                rows = self.queried(table.number, table.name, restored)
                if table.name == NAME:
                    assert rows == self.model.rows(table.number)
                else:
                    assert rows == self.queried(table.number, table.name)
        finally:
            restored.close()
            shutil.rmtree(target)

    # -- readers

    def number(self) -> int:
        with self.state.reading() as state:
            return state.number

    @rule(pick=picks, seconds=st.sampled_from([1, 600, 100_000]))
    def hold(self, pick: int, seconds: int) -> None:
        version, expiry_ms = self.version(pick), self.clock() + seconds * 1000
        hold_id = uuid.uuid4().hex
        (outcome,) = self.state.commit(CreateHold(hold_id, "test", version, expiry_ms))
        assert outcome.refused == (version < self.horizon() or self.model.is_expired(version))
        if not outcome.refused:
            self.model.holds[hold_id] = (version, expiry_ms)

    @rule(pick=picks, release=st.booleans())
    def renew_or_release(self, pick: int, release: bool) -> None:
        hold_id = _picked(list(self.model.holds), pick)
        if hold_id is None:
            return
        version, expiry_ms = self.model.holds[hold_id]
        if release:
            self.state.commit(ReleaseHold(hold_id))
            del self.model.holds[hold_id]
            return
        later = max(expiry_ms, self.clock() + 1_000_000)
        (outcome,) = self.state.commit(RenewHold(hold_id, later))
        if outcome.refused:
            assert expiry_ms <= self.clock(), outcome.reason
            del self.model.holds[hold_id]
        else:
            self.model.holds[hold_id] = (version, later)

    @rule(pick=picks, stop=st.booleans())
    def follow(self, pick: int, stop: bool) -> None:
        if self.is_snapshot:
            return  # its files expire, whatever the follower needs
        if self.model.follower is None:
            start = self.version(pick)
            (outcome,) = self.state.commit(CreateFollower("f", start))
            assert outcome.refused == (start < self.horizon())
            self.model.follower = None if outcome.refused else start
        elif stop or self.model.follower < self.horizon():
            self.state.commit(DeleteFollower("f"))
            self.model.follower = None
        else:
            with self.state.reading() as state:
                result = state.files.ingested_after(self.model.follower, 1000)
                number = state.number
            seen = Counter(row for _, file in result for row in self.read_rows(file.path))
            assert seen == self.model.rows_between(self.model.follower, number)
            self.state.advance_follower("f", number)
            self.model.follower = number

    @rule(pick=picks)
    def replay_changes(self, pick: int) -> None:
        """Applies the feed to the rows of a version, and compares them at each number."""
        start = self.version(pick)
        if self.is_snapshot:
            return
        if start < self.horizon():
            with pytest.raises(InvalidRequestError, match="no longer kept"):
                open_changes(self.raw, NAME, ChangesRequest(first=start + 1))
            return
        copy = ModelCopy(start, self.model.rows(start))
        with open_changes(self.raw, NAME, ChangesRequest(first=start + 1)) as changes:
            self.apply_changes(copy, changes)
        assert copy.number <= self.number()
        self.check_copy(copy, self.number())

    @rule(pick=picks, taken_max=st.none() | st.integers(0, 6), crash_at=crash)
    def copy_changes(self, pick: int, taken_max: int | None, crash_at: int | None) -> None:
        """Follows the feed as a consumer does that stores the number with its rows."""
        if self.is_snapshot:
            return
        followers = {f.name: f for f in self.state.followers()}
        follower = followers.get("copy")
        if follower is not None and follower.lost:
            with pytest.raises(InvalidRequestError, match="is past the table's retention"):
                open_changes(self.raw, NAME, ChangesRequest(follower="copy"))
            self.state.commit(DeleteFollower("copy"))
            follower = None
        known = self.model.copy
        if known is None or (follower is None and known.number < self.horizon()):
            start = max(self.version(pick), self.horizon())
            self.model.copy = ModelCopy(start, self.model.rows(start))
        copy = self.model.copy

        def follow(instance: Instance) -> None:
            request = ChangesRequest(first=copy.number + 1, follower="copy")
            with open_changes(instance, NAME, request) as changes:
                # The follower also passes transactions that changed nothing.
                passed = max(changes.start, copy.number)
                self.check_copy(copy, passed)
                self.apply_changes(copy, changes, taken_max)

        self.attempt(crash_at, follow)
        self.check_copy(copy)

    def check_copy(self, copy: ModelCopy, version: int | None = None) -> None:
        # A copy ordered by a field would have to keep what was deleted, as the table does.
        if self.choice != "latest by":
            assert copy.rows == self.model.rows(copy.number if version is None else version)

    def apply_changes(
        self, copy: ModelCopy, changes: ChangeReader, taken_max: int | None = None
    ) -> None:
        """Applies complete transactions, each once, and stops after some changes."""
        numbered = itertools.groupby(itertools.islice(changes, taken_max), lambda c: c.number)
        for number, group in numbered:
            parts = list(group)
            if taken_max is not None:
                taken_max -= len(parts)
            if number <= copy.number or taken_max == 0:
                continue  # known, or perhaps not complete
            for part in parts:
                if part.operation == "replace":
                    copy.rows.clear()
                rows = [_row(row) for row in part.rows.to_pylist()]
                assert [row[:2] for row in rows] == sorted(row[:2] for row in rows)
                if part.operation == "upsert":
                    copy.upsert(rows)
                elif part.operation == "delete":
                    copy.remove([row[:2] for row in rows])
                else:
                    copy.insert(rows)
                for region in part.regions:
                    copy.delete(region["k"]["min"], region["k"]["max"])
            copy.number = number
            self.check_copy(copy)

    @rule()
    def query_newest(self) -> None:
        self.check_query(None)

    def check_query(self, version: int | None) -> None:
        if fault := self.rows_fault(version):
            with pytest.raises(InvalidRequestError, match=fault):
                self.queried(version)
        else:
            assert self.queried(version) == self.model.rows(version)

    @rule(pick=picks)
    def query_as_of(self, pick: int) -> None:
        self.check_query(self.version(pick))

    @rule(pick=picks)
    def query_as_of_a_time(self, pick: int) -> None:
        with self.state.reading() as state:
            oldest, number = state.oldest_version, state.number
        times = self.entry_times()
        for version in range(oldest, number + 1):
            if self.fault(version) is None:
                with self.state.reading(version) as state:
                    assert times[version] == state.version_time_ms
        time_ms = times[number - pick % (number - oldest + 1)]
        expected = max(version for version, each in times.items() if each <= time_ms)
        if self.rows_fault(expected) is None:
            assert self.queried(PointInTime(time_ms, "then")) == self.model.rows(expected)
        with pytest.raises(InvalidRequestError, match="as of then: "):
            self.queried(PointInTime(times[oldest] - 1, "then"))

    def version(self, pick: int) -> int:
        number = self.number()
        return number - pick % number

    def horizon(self) -> int:
        with self.state.reading() as state:
            return state.horizon

    def added_fields(self, version: int, name: str) -> dict[str, int | None]:
        is_clone = name in self.clones
        return self.clones[name].fields if is_clone else self.model.added_fields(version)

    def queried(
        self, version: Version | None, name: str = NAME, other: Instance | None = None
    ) -> Counter[Row]:
        instance = other or self.raw
        with instance.table(name).state.reading(version) as state:
            fields = self.added_fields(state.version, name)
        with open_query(instance, name, Query(version=version)) as result:
            assert result.schema.names == ["k", "s", "v", *fields]
            actual = [row for batch in result for row in batch.to_pylist()]
        for row in actual:
            # Ingests of JSON lines have null in fields that they lack.
            assert all(row[each] in (None, default) for each, default in fields.items())
        return Counter(map(_row, actual))

    # -- what must hold after every step

    @invariant()
    def every_row_is_there_exactly_once(self) -> None:
        horizon, number = self.horizon(), self.number()
        if horizon > 1:
            with pytest.raises(InvalidRequestError, match=f"oldest readable version is {horizon}"):
                self.check_version(horizon - 1)
        for version in {max(1, horizon), (max(1, horizon) + number) // 2, number}:
            if self.fault(version) is None:
                self.check_version(version)

    def check_version(self, version: int) -> None:
        numbered: list[tuple[int, Row]] = []
        seen: dict[str, list[Any]] = {}
        with self.state.reading(version) as state:
            regions = {p.id: p.region for p in state.partitions.all()}
            deletes = state.deletes.overlapping(whole_region(state.schema))
            files = {f.path: f for f in state.files.all()}
            deleted = {path: find_deleted(file, deletes) for path, file in files.items()}
            for reference in state.files.references():
                region = regions[reference.partition_id]
                for other in seen.setdefault(reference.path, []):
                    assert other.intersect(region) is None, "references of one file overlap"
                seen[reference.path].append(region)
                path = self.folder / "instance" / reference.path
                assert path.exists(), "a referenced file is gone"
                hidden = deleted[reference.path]
                numbered += [
                    (number, row)
                    for number, row in self.read_numbered(files[reference.path])
                    if region.contains(row[:1]) and not any(self.hides(d, row) for d in hidden)
                ]
        rows = [row for _, row in numbered]
        if self.is_latest:
            keys = Counter((number, *row[:2]) for number, row in numbered)
            assert not keys or max(keys.values()) == 1, "a key is twice in a transaction"
            newest = [row for _, row in self.model.newest(sorted(numbered))]
            rows = [row for row in newest if row[2] != DELETE]
        assert Counter(rows) == self.model.rows(version)

    @invariant()
    def numbers_are_dense(self) -> None:
        state_path = self.folder / "instance" / self.model.id / "state.db"
        current, entries = None, []
        log = self.state._log
        head = log.head()
        assert head == self.number()
        low = 0
        while True:
            try:
                entries = log.read(low, 10_000)
                break
            except NotFoundError:
                low += 1
        for entry in entries:
            assert current is None or entry.first_number == current + 1, state_path
            current = entry.last_number
        assert current in (None, head)

    @invariant()
    def history_names_each_ingest(self) -> None:
        with self.state.reading() as state:
            history = state.history.newest(100_000, shows_all=True).entries
        assert [entry.number for entry in history] == list(range(self.number(), 0, -1))
        operation = "load" if self.is_snapshot else "ingest"
        ingests = {entry.number: entry for entry in history if entry.operation == operation}
        for job_id, job in self.model.jobs.items():
            if job.number is not None:
                entry = ingests.pop(job.number)
                assert (entry.job, entry.rows) == (job_id, self.model.written(job.rows).total())
        assert not ingests

    @invariant()
    def held_versions_can_be_read(self) -> None:
        horizon = self.horizon()
        for version, expiry_ms in self.model.holds.values():
            assert expiry_ms <= self.clock() or version >= horizon
            assert expiry_ms <= self.clock() or not self.model.is_expired(version)
        passed = 0
        if self.follower_retention_ms is not None:
            passed = self.number_at(self.clock() - self.follower_retention_ms)
        with self.state.reading() as state:
            history = state.history.newest(100_000).entries
        numbers = [e.number for e in history if e.kind in kinds_of(Subject.ROWS)]
        for follower in self.state.followers():
            assert follower.position >= horizon or follower.position < passed
            changes = [n for n in numbers if n > follower.position]
            assert follower.lag == len(changes)
            assert follower.lost == sum(number <= horizon for number in changes)
            assert follower.is_passed == (follower.position < horizon)

    @invariant()
    def retained_versions_can_be_read(self) -> None:
        if self.retention_ms:
            assert self.horizon() <= self.number_at(self.clock() - self.retention_ms)

    def number_at(self, time_ms: int) -> int:
        with self.state.reading() as state:
            history = state.history.newest(100_000, shows_all=True).entries
        return max((each.number for each in history if each.time_ms <= time_ms), default=0)

    def hides(self, delete: Delete, row: Row) -> bool:
        if delete.keys is not None:
            return row[0] in self.read_keys(delete.keys.path)
        return delete.region.contains(row[:1])

    def read_rows(self, path: str) -> list[Row]:
        return [row for _, row in self.read_file(path)]

    def read_keys(self, path: str) -> set[int]:
        return set(pq.read_table(self.folder / "instance" / path)["k"].to_pylist())

    def read_numbered(self, file: DataFile) -> list[tuple[int, Row]]:
        """Returns the rows of a file with their numbers, which some files have in a column."""
        default = file.number or 0
        return [(number or default, row) for number, row in self.read_file(file.path)]

    def read_file(self, path: str) -> list[tuple[int | None, Row]]:
        if path not in self.contents:
            result = pq.read_table(self.folder / "instance" / path).to_pylist()
            for row in result:
                assert (row.get("__deleted") or False) == (self.is_latest and row["v"] == DELETE)
            self.contents[path] = [(row.get("__number"), _row(row)) for row in result]
        return self.contents[path]

    # -- the end: whatever happened, all is done once it is let run

    def teardown(self) -> None:
        try:
            if self.model is not None:
                self.run_until_idle()
                self.nothing_is_locked()
                self.nothing_is_left_over()
        finally:
            self.raw.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def run_until_idle(self) -> None:
        ref = self.raw.tables.index.find(NAME)
        # As a run remembers it: by the state's estimate a leaf may stay over the threshold
        # that by its sketches is small enough.
        sent: dict[str, SentSplit] = {}
        for _ in range(100):
            # Leases and what is in flight run out in this time.
            self.clock.now_ms += 61 * MINUTE_MS
            send_splits(self.raw, ref, sent, self.number())
            report = create_table_jobs(self.raw, ref)
            worked = False
            while _run_one(self.raw):
                worked = True
            if not report.did_anything and not worked and not self.unfinished():
                break
        else:
            counts = {name.value: self.raw.jobs.queue(name).counts() for name in QueueName}
            raise AssertionError(f"it does not come to rest: {report}, {counts}")
        self.note_commits()
        for job_id in self.sent_jobs() & set(self.model.jobs):
            # A crash just before the send may be the only one that left no message.
            job = self.model.jobs[job_id]
            is_done = job.number is not None or self.is_rejected(job_id)
            assert is_done or job_id in self.never_sent()
        assert all(not self.raw.jobs.dead_letters(name).list() for name in QueueName)
        self.check_query(None)

    def is_rejected(self, job_id: str) -> bool:
        """Returns whether the job is a load that another one overtook."""
        if not self.is_snapshot or not self.was_created(job_id):
            return False
        job = self.raw.jobs.tracker.job(self.raw.tables.index.find(NAME).id, job_id)
        return job.state is JobState.REJECTED

    def never_sent(self) -> set[str]:
        return {
            job_id
            for job_id, job in self.model.jobs.items()
            if job.number is None and not self.was_created(job_id)
        }

    def was_created(self, job_id: str) -> bool:
        try:
            job = self.raw.jobs.tracker.job(self.raw.tables.index.find(NAME).id, job_id)
        except NotFoundError:
            return False
        return job.created_ms is not None

    def unfinished(self) -> int:
        return sum(self.raw.jobs.queue(name).counts().unfinished for name in QueueName)

    def nothing_is_locked(self) -> None:
        ref = self.raw.tables.index.find(NAME)
        create_table_jobs(self.raw, ref, full=True)
        while _run_one(self.raw):
            pass
        with self.state.reading() as state:
            assert state.jobs.count() == 0
            assert all(len(files) == 1 for _, files in state.files.leaf_references())
            assert not list(state.files.inner_references())
        self.every_row_is_there_exactly_once()

    def nothing_is_left_over(self) -> None:
        for name, clone in self.clones.items():
            if clone.has_snapshot:
                assert self.queried(None, name) == self.model.visible(clone.content)
            delete_table(self.raw, name, now=True)
        finish_deletions(self.raw)
        self.clock.now_ms += 20 * DAY_MS
        self.state.commit(AcceptTime(self.clock.now_ms))  # much time may have passed before
        if self.model.follower is not None:
            self.state.commit(DeleteFollower("f"))
        self.state.commit(DeleteFollower("copy"))
        collect_table(self.raw, NAME)
        collect_table_orphans(self.raw, NAME)
        finish_deletions(self.raw)
        sweep_abandoned(self.raw)
        self.note_commits()
        with self.state.reading() as state:
            files = [f for version in self.kept_versions() for f in state.at(version).files.all()]
            names = {f.path + s for f in files for s in ("", *f.sidecars)}
            for delete in state.deletes.overlapping(whole_region(state.schema)):
                is_needed = any(find_deleted(file, [delete]) for file in files)
                assert is_needed or delete.number > state.horizon, "a delete is not forgotten"
            for _, delete in state.deletes.remembered(whole_region(state.schema), state.number):
                if delete.keys is not None:
                    names |= {delete.keys.path + s for s in ("", *delete.keys.sidecars)}
        data = self.folder / "instance" / self.model.id / "data"
        left = {
            p.relative_to(self.folder / "instance").as_posix()
            for p in data.rglob("*")
            if p.is_file()
        }
        assert left == names
        folders = {p.name for p in (self.folder / "instance").glob("[0-9a-f]" * 8)}
        assert folders == {self.model.id}
        self.check_query(None)

    def kept_versions(self) -> list[int]:
        """Returns the newest version, or all that the live versions of a snapshot table have."""
        number, horizon = self.number(), self.horizon()
        kept = [number]
        for version in self.model.live():
            kept += range(max(version, horizon), self.model.end(version) or number)
        return kept


def _picked(candidates: Sequence[T], pick: int) -> T | None:
    return candidates[pick % len(candidates)] if candidates else None


def _run_one(instance: Instance) -> bool:
    return Worker(instance, "task", threading.Event()).run_one()


def _operations(rows: list[Row]) -> pa.Array:
    return pa.array(["d" if value == DELETE else "u" for _, _, value in rows], pa.string())


def _row(row: dict[str, Any]) -> Row:
    """Returns the fields that the rows of the model have. Deletes by key have fewer."""
    return tuple(row[name] for name in "ksv" if name in row)  # type: ignore[return-value]


def _table(rows: list[Row]) -> pa.Table:
    schema = pa.schema([("k", pa.int64()), ("s", pa.int64()), ("v", pa.string())])
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(900)  # a minute alone; its histories differ, and others use the processors
def test_an_instance_agrees_with_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    # A follower's position is recorded after each transaction.
    monkeypatch.setattr("sleeper.query.changes.reader._ROWS_PER_COMMIT", 1)
    # To find the shortest history takes minutes; the blob repeats the one that was found.
    shrink = (Phase.shrink,) if "SLEEPER_STATEFUL_SHRINK" in os.environ else ()
    run_state_machine_as_test(
        InstanceMachine,
        settings=settings(
            max_examples=examples(8),
            stateful_step_count=int(os.environ.get("SLEEPER_STATEFUL_STEPS", "40")),
            deadline=None,
            print_blob=True,
            phases=(Phase.generate, *shrink),
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
