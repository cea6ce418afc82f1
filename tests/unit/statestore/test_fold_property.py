"""Random histories: a copy folded from the log equals the state that made it, at every version."""

import tempfile
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sleeper.errors import InvalidRequestError
from sleeper.local.state_store import SqliteTransactionLog
from sleeper.partitions.partition import PartitionId
from sleeper.partitions.region import Range, Region
from sleeper.processing.field_changes import AddField, DropField
from sleeper.schema.model import Field, PrimitiveType
from sleeper.statestore.database import Database
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.change_schema import ChangeSchema
from sleeper.statestore.transactions.collection import CollectFiles, FilesCollected
from sleeper.statestore.transactions.compaction_jobs import CommitCompaction, ReleaseJobs
from sleeper.statestore.transactions.holds import CreateHold
from sleeper.statestore.transactions.partition_split import PushDownReferences, ReferenceMove
from sleeper.statestore.transactions.restore import RestoreVersion, UndoJob
from tests.examples import examples
from tests.tables.memory_holds import MemoryHolds
from tests.tables.state_table import StateTable, data_file, read_tables

KEYS = 1_000


class History:
    """Applies steps that are mostly valid, and records each version."""

    def __init__(self, folder: Path) -> None:
        self.table = StateTable(folder, "embedded").initialise(500)
        self.count = 0
        self.jobs: list[str] = []
        self.expected_versions: dict[int, dict[str, list[str]]] = {}
        self.record()

    def record(self) -> None:
        with self.table.store.reading() as state:
            self.expected_versions[state.number] = picture(state)

    def step(self, kind: str, choice: int) -> None:
        self.count += 1
        self.table.clock.now_ms += choice
        getattr(self, kind)(choice)
        self.record()

    def ingest(self, choice: int) -> None:
        with self.table.store.reading() as state:
            partitions = list(state.partitions.all())
        partition = partitions[choice % len(partitions)]
        key_range = partition.region.ranges[0]
        low, high = max(key_range.min, 0), min(key_range.max or KEYS, KEYS) - 1
        job = self.table.ingest_job(f"f{self.count}", partition=partition.id, keys=(low, high))
        self.table.commit(job)
        self.jobs.append(job.id)

    def split(self, choice: int) -> None:
        with self.table.store.reading() as state:
            leaves = list(state.partitions.leaves())
        leaf = leaves[choice % len(leaves)]
        key_range = leaf.region.ranges[0]
        low, high = max(key_range.min, 0), min(key_range.max or KEYS, KEYS)
        if high - low > 1:
            ids = (f"l{self.count}", f"r{self.count}")
            self.table.split(leaf.id, (low + high) // 2, *ids)

    def push_down(self, choice: int) -> None:
        with self.table.store.reading() as state:
            moves = []
            for file, reference in islice(state.files.inner_references(), 2):
                source = state.partitions.get(reference.partition_id).region
                ((low,), (high,)) = file.smallest_key, file.largest_key
                keys = Region((Range(low, high + 1),)).intersect(source)
                leaves = state.partitions.leaves_overlapping([] if keys is None else [keys])
                references = tuple((leaf.id, 5) for leaf in leaves)
                moves.append(ReferenceMove(file.path, reference.partition_id, references))
        assert not self.table.commit(PushDownReferences(tuple(moves))).refused

    def assign(self, choice: int) -> None:
        with self.table.store.reading() as state:
            groups = list(state.files.partition_references())
        if groups:
            partition, files = groups[choice % len(groups)]
            paths = [f.path for f in files if f.job_id is None]
            if paths:
                self.table.assign(f"job{self.count}", *paths, partition=partition, lease_ms=20)

    def compact(self, choice: int) -> None:
        with self.table.store.reading() as state:
            jobs = list(state.jobs.assigned())
            if not jobs:
                return
            job = jobs[choice % len(jobs)]
            key = max(state.partitions.get(job.partition_id).region.ranges[0].min, 0)
        output = data_file(f"f{self.count}", (key, key)) if choice % 4 else None
        commit = CommitCompaction(
            job.id, job.partition_id, job.inputs, output, self.table.clock.now_ms
        )
        assert not self.table.commit(commit).refused

    def release(self, choice: int) -> None:
        with self.table.store.reading() as state:
            expired = [j.id for j in state.jobs.expired(self.table.clock.now_ms)]
        self.table.commit(ReleaseJobs(tuple(expired)))

    def restore(self, choice: int) -> None:
        with self.table.store.reading() as state:
            version = max(state.oldest_version, state.number - choice)
        expected = self.expected_versions[version]
        self.table.commit(RestoreVersion(version))
        with self.table.store.reading() as state:
            leaves = {leaf.id for leaf in state.partitions.leaves()}
            if leaves == expected.keys():
                assert picture(state) == expected

    def undo(self, choice: int) -> None:
        if self.jobs:
            self.table.commit(UndoJob(self.jobs[choice % len(self.jobs)]))

    def hold(self, choice: int) -> None:
        with self.table.store.reading() as state:
            version = max(state.oldest_version, state.number - choice)
        expiry = self.table.clock.now_ms + 1 + choice
        self.table.commit(CreateHold(f"h{self.count}", "me", version, expiry))

    def change_schema(self, choice: int) -> None:
        name = f"v{choice % 4}"
        with self.table.store.reading() as state:
            exists = any(each.name == name for each in state.schema.fields)
        change = DropField(name) if exists else AddField(Field(name, PrimitiveType.INT))
        assert not self.table.commit(ChangeSchema((change,))).refused

    def collect(self, choice: int) -> None:
        with self.table.store.reading() as state:
            files = state.collection.unreferenced(self.table.clock.now_ms, 1 + choice)
            result = state.collection.collecting(10)
        if files:
            horizon = max(f.unreferenced for f in files)
            self.table.commit(CollectFiles(tuple(f.path for f in files), horizon))
        elif choice:
            self.table.commit(CollectFiles((), self.table.number() - choice))
        self.table.commit(FilesCollected(tuple(f.path for f in result)))


STEPS = (
    "ingest",
    "ingest",
    "split",
    "push_down",
    "assign",
    "compact",
    "release",
    "hold",
    "collect",
    "restore",
    "undo",
    "change_schema",
)


def picture(state) -> dict[str, list[str]]:
    """The files that each leaf is read from, and the fields."""
    files = {
        leaf.id: [f.path for f in state.files.leaf_files(PartitionId(leaf.id))]
        for leaf in state.partitions.leaves()
    }
    return files | {"fields": [f"{each.name} {each.id}" for each in state.schema.fields]}


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 30)), max_size=40))
def test_a_copy_folded_from_the_log_equals_the_state_and_old_versions_stay_as_they_were(steps):
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder))
        for kind, choice in steps:
            history.step(kind, choice)
        log = SqliteTransactionLog(Database(Path(folder, "state.db")))
        copy = StateStore(Database(Path(folder, "copy.db")), log, MemoryHolds())
        with copy.reading() as state:
            horizon, number = state.horizon, state.number
        assert read_tables(Path(folder, "copy.db")) == read_tables(Path(folder, "state.db"))
        for version, expected in history.expected_versions.items():
            if version >= horizon:
                with copy.reading(version) as state:
                    assert picture(state) == expected, version
            else:
                with (
                    pytest.raises(
                        InvalidRequestError, match=f"oldest readable version is {horizon}"
                    ),
                    copy.reading(version),
                ):
                    pass
        assert number == max(history.expected_versions)
        history.table.store.close()
