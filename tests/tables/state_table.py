"""Tables for tests: `TableBuilder`, and `StateTable`, whose data files exist in its state only.

`tests.tables.data_table.DataTable` has Parquet files too.
"""

import itertools
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from obstore.store import LocalStore, ObjectStore

from sleeper.errors import UnavailableError
from sleeper.files import DataFile
from sleeper.local.holds import HOLDS_FILE, LocalHolds
from sleeper.local.state_store import SqliteTransactionLog
from sleeper.partitions.partition import (
    Partition,
    PartitionId,
    split_region,
    tree_from_split_points,
)
from sleeper.schema.model import Field, KeyValue, PrimitiveType, Schema, schema_to_json
from sleeper.statestore.commit_queue import CommitQueue
from sleeper.statestore.database import Database
from sleeper.statestore.holds import Hold
from sleeper.statestore.log import LogEntry, TransactionLog
from sleeper.statestore.snapshots import SnapshotStore
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.compaction_jobs import AssignFiles, JobAssignment
from sleeper.statestore.transactions.partition_split import SplitPartition
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.statestore.transactions.transaction import Outcome, Transaction
from sleeper.tables import TableId
from tests.clock import FakeClock

SCHEMA = Schema((Field("key", PrimitiveType.LONG),))
ROOT = PartitionId("root")
_unique = itertools.count()


@dataclass
class FaultyLog:
    """A log that can run an action before the next append, or lose its response."""

    inner: TransactionLog
    before_next_append: Callable[[], object] | None = None
    lose_next_response: bool = False
    appended: list[LogEntry] = field(default_factory=list)
    reads: int = 0

    def head(self) -> int:
        return self.inner.head()

    def begin(self, after: int) -> None:
        self.inner.begin(after)

    def read(self, after: int, limit: int = 100) -> Sequence[LogEntry]:
        self.reads += 1
        return self.inner.read(after, limit)

    def append(self, entry: LogEntry) -> None:
        if self.before_next_append is not None:
            action, self.before_next_append = self.before_next_append, None
            action()
        self.inner.append(entry)
        self.appended.append(entry)
        if self.lose_next_response:
            self.lose_next_response = False
            raise UnavailableError("the response was lost")

    def start_append(self, entry: LogEntry) -> Callable[[], None]:
        return lambda: self.append(entry)

    def trim(self, up_to: int) -> None:
        self.inner.trim(up_to)

    def cursor(self, follower: str) -> int:
        return self.inner.cursor(follower)

    def advance(self, follower: str, to: int) -> None:
        self.inner.advance(follower, to)

    def used_bodies(self, paths: Sequence[str]) -> set[str]:
        return self.inner.used_bodies(paths)


class TableBuilder:
    """Changes and reads the state of a table in `store`."""

    store: StateStore

    def partitions(self) -> list[Partition]:
        with self.store.reading() as state:
            return list(state.partitions.all())

    def leaves(self) -> list[Partition]:
        with self.store.reading() as state:
            return list(state.partitions.leaves())

    def files(self) -> list[DataFile]:
        with self.store.reading() as state:
            return list(state.files.all())

    def holds(self) -> list[Hold]:
        return self.store.holds.all()

    def leaf_paths(self, leaf: str, version: int | None = None) -> list[str]:
        with self.store.reading(version) as state:
            return [f.path for f in state.files.leaf_files(PartitionId(leaf))]

    def number(self) -> int:
        with self.store.reading() as state:
            return state.number

    def split_at(
        self, partition: PartitionId, point: KeyValue, dimension: int = 0
    ) -> tuple[PartitionId, PartitionId]:
        """Splits a leaf, whatever its number of rows; returns the ids of the new leaves."""
        left, right = PartitionId(f"{partition}L"), PartitionId(f"{partition}R")
        self._commit(self.make_split(partition, point, left, right, dimension))
        return left, right

    def make_split(
        self, partition: PartitionId, point: KeyValue, left: str, right: str, dimension: int = 0
    ) -> SplitPartition:
        with self.store.reading() as state:
            region = state.partitions.get(partition).region
        below, above = split_region(region, dimension, point)
        return SplitPartition(
            partition,
            (
                Partition(PartitionId(left), below, partition),
                Partition(PartitionId(right), above, partition),
            ),
        )

    def _commit(self, transaction: Transaction) -> int:
        number = self.store.commit_or_raise(transaction)
        assert number is not None
        return number


@dataclass
class StateTable(TableBuilder):
    """One table in a folder. `another_store` opens it as another process does.

    In mode `embedded` log and state are one SQLite file. In mode `remote` the log is separate, in
    what `make_log` returns or in another SQLite file.
    """

    folder: Path
    mode: str
    clock: FakeClock = field(default_factory=FakeClock)
    make_log: Callable[[ObjectStore], TransactionLog] | None = None

    def __post_init__(self) -> None:
        self.log: FaultyLog
        self.store = self.another_store()

    def another_store(self) -> StateStore:
        objects = LocalStore(str(self.folder))
        snapshots = SnapshotStore(objects, "table")
        if self.mode == "embedded":
            database = Database(self.folder / "state.db")
            log = FaultyLog(SqliteTransactionLog(database))
            queue = CommitQueue(database.lock_path)
        else:
            queue = None
            database = Database(self.folder / f"copy-{next(_unique)}.db", durable=False)
            log = FaultyLog(self.remote_log(objects))
        if not hasattr(self, "log"):
            self.log = log
        holds = LocalHolds(Database(self.folder / HOLDS_FILE), TableId("table"))
        return StateStore(database, log, holds, self.clock, snapshots, queue)

    def remote_log(self, objects: ObjectStore) -> TransactionLog:
        if self.make_log is not None:
            return self.make_log(objects)
        return SqliteTransactionLog(Database(self.folder / "log.db"))

    def initialise(self, *split_points: int) -> "StateTable":
        tree = tree_from_split_points(SCHEMA, split_points)
        self.store.commit_or_raise(InitialiseTable(schema_to_json(SCHEMA), tuple(tree)))
        return self

    def commit(self, transaction: Transaction) -> Outcome:
        (outcome,) = self.store.commit(transaction)
        return outcome

    def ingest(self, *paths: str, partition: PartitionId = ROOT, keys: tuple[int, int] = (0, 9)):
        return self.commit(self.ingest_job(*paths, partition=partition, keys=keys))

    def ingest_job(
        self,
        *paths: str,
        partition: PartitionId = ROOT,
        keys: tuple[int, int] = (0, 9),
        job_id: str | None = None,
    ) -> AddFiles:
        new = (NewFile(data_file(p, keys), ((partition, 10),)) for p in paths)
        return AddFiles(job_id or f"job-{next(_unique)}", self.clock.now_ms, tuple(new))

    def assign(self, job_id: str, *paths: str, partition: PartitionId = ROOT, lease_ms: int = 1000):
        job = JobAssignment(job_id, partition, paths, self.clock.now_ms + lease_ms)
        return self.commit(AssignFiles((job,)))

    def split(self, partition: PartitionId, point: int, left: str, right: str) -> Outcome:
        return self.commit(self.make_split(partition, point, left, right))


def data_file(path: str, keys: tuple[int, int] = (0, 9), rows: int = 10) -> DataFile:
    return DataFile(path, rows, 100, (keys[0],), (keys[1],), sidecars=(".sketches",))


def read_tables(database_path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Returns the rows of every table of a state database, without the log's tables."""
    connection = sqlite3.connect(database_path)
    try:
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'log_%'"
        ).fetchall()
        return {
            name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr) for (name,) in names
        }
    finally:
        connection.close()
