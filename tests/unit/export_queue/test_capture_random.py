"""Random changes of tables: the newest exports of a queue are the rows of its table.

Capturing dies in between at random, repeats steps, and spills to disk.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sleeper
from sleeper.clock import system_clock
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.export_queue import capture, changed_keys
from sleeper.export_queue.definition import ExportSource
from sleeper.garbage_collection.service import collect_table
from sleeper.jobs.queue import QueueName
from sleeper.local.instance import open_local_instance
from sleeper.splitting.find import send_splits
from sleeper.splitting.service import run_split_message
from sleeper.statestore.store import StateStore
from tests.clock import FakeClock
from tests.examples import examples
from tests.tables.opened import compact
from tests.unit.export_queue.receiver import Receiver, create_queue, define_queue

SCHEMA = {
    "rowKeyFields": [{"name": "key", "type": "LongType"}],
    "sortKeyFields": [{"name": "sort", "type": "StringType"}],
    "valueFields": [
        {"name": "by", "type": "LongType"},
        {"name": "text", "type": "StringType"},
    ],
}
FIELDS = ("key", "sort", "by", "text")
COMMON = {
    "sleeper.table.gc.delay.minutes": "0",
    "sleeper.table.partition.splitting.threshold": "1",
}
KINDS = {
    "all rows": {},
    "latest rows": {"sleeper.table.rows": "latest"},
    "latest by a field": {"sleeper.table.rows": "latest", "sleeper.table.latest.by": "by"},
    "snapshots": {
        "sleeper.table.type": "snapshot",
        "sleeper.table.snapshot.min.versions": "1",
    },
}
QUEUES = {
    "key": "sort,by,text",
    "key,sort": "by,text",
    "key,text": "sort",
    "text": "key,sort",
    "by": "",
}
Row = tuple[int, str, int, str]

one_row = st.tuples(
    st.integers(0, 5), st.sampled_from("ab"), st.integers(0, 3), st.sampled_from("xyz")
)
ingests = st.tuples(st.just("ingest"), st.lists(one_row, min_size=1, max_size=6))
removals = st.tuples(st.just("remove"), st.lists(one_row, min_size=1, max_size=3))
delete_keys = st.tuples(st.just("delete_keys"), st.lists(st.integers(0, 5), min_size=1, max_size=3))
delete_range = st.tuples(st.just("delete_range"), st.tuples(st.integers(0, 3), st.integers(4, 6)))
restores = st.tuples(st.just("restore"), st.integers(0, 8))
others = st.tuples(
    st.sampled_from(["compact", "collect", "take", "crash", "rename", "undo", "empty", "split"]),
    st.none(),
)
steps = st.lists(
    st.one_of(ingests, ingests, removals, delete_keys, delete_range, restores, others, others),
    min_size=2,
    max_size=12,
)


@dataclass
class Subject:
    """A table with a queue, and its receiver."""

    instance: sleeper.Instance
    clock: FakeClock
    table: sleeper.Table
    receiver: Receiver
    kind: str
    first: int
    text: str = "text"

    def run(self, name: str, argument: Any) -> None:
        actions: dict[str, Callable[[Any], None]] = {
            "ingest": self._ingest,
            "remove": self._remove,
            "delete_keys": self._delete_keys,
            "delete_range": self._delete_range,
            "restore": self._restore,
            "compact": self._compact,
            "collect": self._collect,
            "rename": self._rename,
            "take": self._take,
            "crash": self._crash,
            "undo": self._undo,
            "empty": self._empty,
            "split": self._split,
        }
        actions[name](argument)

    def _ingest(self, added: list[Row]) -> None:
        self.table.ingest(self._arrow(added))

    def _remove(self, removed: list[Row]) -> None:
        if "latest" not in self.kind:
            return
        operations = pa.array(["d"] * (len(removed) - 1) + ["u"])
        self.table.ingest(self._arrow(removed).append_column("op", operations), op_column="op")

    def _delete_keys(self, keys: list[int]) -> None:
        if self.has_rows:
            self.table.delete(keys=[[key] for key in keys])

    def _delete_range(self, ends: tuple[int, int]) -> None:
        if self.has_rows:
            self.table.delete(ranges=[ends])

    def _restore(self, back: int) -> None:
        version = max(self.first, self.table.version - back)
        # It may have expired, or be before the first load.
        with suppress(InvalidRequestError):
            self.table.restore(version)

    def _compact(self, _: None) -> None:
        if self.kind != "snapshots":
            compact(self.instance)

    def _collect(self, _: None) -> None:
        self.clock.pass_minutes(1)
        if self.kind == "snapshots":
            self.table.expire_snapshots()
            self.clock.pass_minutes(1)
        collect_table(self.instance._ports, "rows")

    def _rename(self, _: None) -> None:
        name = "text" if self.text == "renamed" else "renamed"
        if self.kind != "snapshots":
            self.table.rename_field(self.text, name)
            self.text = name

    def _undo(self, _: None) -> None:
        jobs = [e.job for e in self.table.history() if e.kind == "add_files" and e.job]
        if self.kind != "snapshots" and jobs:
            # It may be undone, or deletes and restores after it may prevent it.
            with suppress(InvalidRequestError):
                self.table.undo(jobs[-1])

    def _empty(self, _: None) -> None:
        if self.kind != "snapshots":
            self.table.reinitialise()

    def _split(self, _: None) -> None:
        ports = self.instance._ports
        send_splits(ports, ports.table("rows").ref, {}, self.table.version)
        queue = ports.jobs.queue(QueueName.SPLITTING)
        for message in queue.receive():
            run_split_message(ports, message.body)
            queue.delete(message.receipt)

    def _take(self, _: None) -> None:
        self.receiver.take()

    def _crash(self, _: None) -> None:
        with dying_before_cursor():
            try:
                self.receiver.take()
            except UnavailableError:
                self.receiver.receive()

    @property
    def has_rows(self) -> bool:
        if self.kind != "snapshots":
            return True
        versions = self.table.snapshot_versions()
        return bool(versions)

    def _arrow(self, found: list[Row]) -> pa.Table:
        names = [*FIELDS[:3], self.text]
        columns = dict(zip(names, zip(*found, strict=True), strict=True))
        return pa.table({name: list(values) for name, values in columns.items()})

    def check(self) -> None:
        """The receiver has the keys of the table, each with the values of one of its rows."""
        report = self.receiver.take()
        assert report.is_complete, report
        assert report.problem is None
        names = [self.text if f.name == "text" else f.name for f in self.receiver.queue.keys]
        values = [self.text if f.name == "text" else f.name for f in self.receiver.queue.values]
        expected: dict[tuple[Any, ...], set[tuple[Any, ...]]] = {}
        for row in self.table.query().to_arrow().to_pylist() if self.has_rows else []:
            key = tuple(row[name] for name in names)
            expected.setdefault(key, set()).add(tuple(row[name] for name in values))
        found = self.receiver.rows
        assert found.keys() == expected.keys()
        assert all(found[key] in expected[key] for key in found)


@contextmanager
def dying_before_cursor() -> Iterator[None]:
    """Fails after a step was stored, before its position is in the log."""

    def fail(_self: StateStore, _name: str, _to: int) -> None:
        raise UnavailableError("died")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StateStore, "advance_follower", fail)
        yield


@contextmanager
def opened(kind: str, keys: str, existing: bool) -> Iterator[Subject]:
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder:
        path = Path(folder) / "instance"
        sleeper.create_instance(path).close()
        clock = FakeClock(system_clock())
        with sleeper.Instance(open_local_instance(path, clock)) as instance:
            properties = {**COMMON, **KINDS[kind]}
            table = instance.create_table("rows", SCHEMA, properties, split_points=[3])
            on = ExportSource.SNAPSHOT if kind == "snapshots" else ExportSource.INGEST
            if existing:
                rows = {"key": [1, 4], "sort": ["a", "b"], "by": [1, 2], "text": ["x", "y"]}
                table.ingest(pa.table(rows))
            queue = define_queue(table, keys, QUEUES[keys], on, existing_rows=existing, buckets=7)
            create_queue(instance._ports, "rows", queue)
            receiver = Receiver(instance._ports, queue)
            yield Subject(instance, clock, table, receiver, kind, table.version)


def _memory_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@pytest.fixture(params=["in memory", "spilled"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also divides all rows into files, and stores every part alone."""
    if request.param == "spilled":
        monkeypatch.setattr(changed_keys, "MEMORY_BYTES", 1)
        monkeypatch.setattr(changed_keys, "_CHUNK_BYTES", 1)
        monkeypatch.setattr(capture, "_STEP_BYTES", 1)
        monkeypatch.setattr(capture, "_ADD_BYTES", 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("memory")
@settings(
    max_examples=examples(4),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(keys=st.sampled_from(sorted(QUEUES)), existing=st.booleans(), history=steps)
def test_the_newest_exports_are_the_rows_of_the_table(
    kind: str, keys: str, existing: bool, history: list[tuple[str, Any]]
) -> None:
    with opened(kind, keys, existing) as subject:
        for name, argument in history:
            subject.run(name, argument)
        subject.check()
