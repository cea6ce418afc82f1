"""Random changes of tables: a store that follows equals a store that is loaded, and a query.

The stores are on disk, in memory, of partitions, and a cache without a copy. They are refreshed and
opened again at random moments, so that some take many changes at once and others each by itself.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sleeper
from sleeper.adjunct import AdjunctStore, adjunct_store
from sleeper.adjunct.open_store import OpenStore
from sleeper.adjunct.versions import store as store_module
from sleeper.clock import system_clock
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.garbage_collection.service import collect_table
from sleeper.jobs.queue import QueueName
from sleeper.local.instance import open_local_instance
from sleeper.query import row_keys
from sleeper.splitting.find import send_splits
from sleeper.splitting.service import run_split_message
from tests.clock import FakeClock
from tests.examples import examples
from tests.tables.opened import compact

KEY = {"name": "key", "type": "LongType"}
PART = {"name": "part", "type": "StringType"}
BY = {"name": "by", "type": "LongType"}
TEXT = {"name": "text", "type": "StringType"}
FIELDS = ("key", "part", "by", "text")


@dataclass(frozen=True)
class Kind:
    """A kind of tables. `part` is a row key, a sort key, or a value."""

    part: str = "value"
    properties: dict[str, str] = field(default_factory=dict)
    by: str = "LongType"

    @property
    def schema(self) -> dict[str, Any]:
        fields: dict[str, list[dict[str, str]]] = {"row": [KEY], "sort": [], "value": []}
        fields[self.part].append(PART)
        fields["value"] += [{**BY, "type": self.by}, TEXT]
        return {f"{group}KeyFields".replace("valueKey", "value"): f for group, f in fields.items()}

    @property
    def is_snapshot(self) -> bool:
        return "sleeper.table.type" in self.properties

    @property
    def is_latest(self) -> bool:
        return "sleeper.table.rows" in self.properties


LATEST = {"sleeper.table.rows": "latest"}
LATEST_BY = {**LATEST, "sleeper.table.latest.by": "by"}
SNAPSHOT = {"sleeper.table.type": "snapshot", "sleeper.table.snapshot.min.versions": "1"}
KINDS = {
    "all rows": Kind(),
    "all rows of two fields": Kind("row"),
    "all rows in order": Kind("sort"),
    "latest": Kind("value", LATEST),
    "latest of two fields": Kind("row", LATEST),
    "latest in order": Kind("sort", LATEST),
    "latest by a field": Kind("value", LATEST_BY),
    "latest by a field, of two fields": Kind("row", LATEST_BY),
    "latest by a field, in order": Kind("sort", LATEST_BY),
    "sums": Kind("row", {"sleeper.table.aggregations": "sum(by),max(text)"}),
    "sums in order": Kind("sort", {"sleeper.table.aggregations": "sum(by),max(text)"}),
    "young rows": Kind("value", {"sleeper.table.filters": "ageOff(by,1000)"}),
    "snapshots": Kind("value", SNAPSHOT),
    "snapshots in order": Kind("sort", SNAPSHOT),
}
COMMON = {
    "sleeper.table.gc.delay.minutes": "0",
    "sleeper.table.partition.splitting.threshold": "1",
}
STORES = {
    "disk": {"type": "rocksdb"},
    "memory": {"type": "memory"},
    "part-0": {"type": "memory", "partition": "0/2"},
    "part-1": {"type": "rocksdb", "partition": "1/2"},
}
CACHE = {"cache_bytes": 65_536}
# Far from now: a row of "young rows" is old or young whatever time the steps take.
TIMES = [0, 1, 2, 2**50]
Row = tuple[int, str, int, str]

one_row = st.tuples(
    st.integers(0, 5), st.sampled_from("ab"), st.sampled_from(TIMES), st.sampled_from("xyz")
)
one_store = st.sampled_from(sorted(STORES))
ingests = st.tuples(st.just("ingest"), st.lists(one_row, min_size=1, max_size=6))
transactions = st.tuples(
    st.just("transact"), st.tuples(st.lists(one_row, min_size=1, max_size=3), st.integers(0, 5))
)
removals = st.tuples(st.just("remove"), st.lists(one_row, min_size=1, max_size=3))
delete_keys = st.tuples(st.just("delete_keys"), st.lists(one_row, min_size=1, max_size=3))
delete_range = st.tuples(st.just("delete_range"), st.tuples(st.integers(0, 3), st.integers(4, 6)))
delete_region = st.tuples(
    st.just("delete_region"),
    st.tuples(st.integers(0, 3), st.none() | st.integers(4, 6), st.sampled_from("ab")),
)
restores = st.tuples(st.just("restore"), st.integers(0, 8))
refreshes = st.tuples(st.sampled_from(["refresh", "reopen", "rebuild"]), one_store)
schema_changes = st.tuples(st.just("change_fields"), st.sampled_from(["add", "drop", "rename"]))
others = st.tuples(st.sampled_from(["compact", "collect", "undo", "empty", "split"]), st.none())
steps = st.lists(
    st.one_of(
        ingests,
        ingests,
        transactions,
        removals,
        delete_keys,
        delete_range,
        delete_region,
        restores,
        refreshes,
        refreshes,
        schema_changes,
        others,
    ),
    min_size=4,
    max_size=14,
).filter(lambda history: len({name for name, _ in history}) >= 3)


@dataclass
class Subject:
    """A table, and the stores that follow it."""

    instance: sleeper.Instance
    clock: FakeClock
    kind: Kind
    folder: Path
    stack: ExitStack
    table: sleeper.Table = field(init=False)
    stores: dict[str, AdjunctStore] = field(default_factory=dict)
    cache: AdjunctStore | None = None
    first: int = 0

    def __post_init__(self) -> None:
        properties = {**COMMON, **self.kind.properties}
        schema = self.kind.schema
        self.table = self.instance.create_table("rows", schema, properties, split_points=[3])
        self._ingest([(1, "a", 1, "x"), (4, "b", 2, "y")])
        self.first = self.table.version
        for name in STORES:
            self.stores[name] = self._open(name)
        if not self.kind.is_snapshot:
            self.cache = self._open("cache", **CACHE)

    def _open(self, name: str, folder: str = "stores", **options: Any) -> AdjunctStore:
        return self.stack.enter_context(
            AdjunctStore.open(
                name,
                "table:rows",
                self.folder / folder,
                instance=self.instance,
                refresh_seconds=None,
                bootstrap_seconds=0,
                **(options or STORES[name]),
            )
        )

    def run(self, name: str, argument: Any) -> None:
        actions: dict[str, Callable[[Any], None]] = {
            "ingest": self._ingest,
            "transact": self._transact,
            "remove": self._remove,
            "delete_keys": self._delete_keys,
            "delete_range": self._delete_range,
            "delete_region": self._delete_region,
            "restore": self._restore,
            "compact": self._compact,
            "collect": self._collect,
            "change_fields": self._change_fields,
            "undo": self._undo,
            "empty": self._empty,
            "split": self._split,
            "refresh": self._refresh,
            "reopen": self._reopen,
            "rebuild": self._rebuild,
        }
        actions[name](argument)

    def _ingest(self, added: list[Row]) -> None:
        self.table.ingest(self._arrow(added))

    def _transact(self, changes: tuple[list[Row], int]) -> None:
        if self.kind.is_snapshot:
            return
        rows, deleted = changes
        with self.table.transaction() as transaction:
            transaction.delete(ranges=[(deleted, deleted + 1)])
            transaction.ingest(self._arrow(rows))

    def _remove(self, removed: list[Row]) -> None:
        if self.kind.is_latest:
            operations = pa.array(["d"] * (len(removed) - 1) + ["u"])
            rows = self._arrow(removed).append_column("op", operations)
            self.table.ingest(rows, op_column="op")

    def _delete_keys(self, rows: list[Row]) -> None:
        fields = 2 if self.kind.part == "row" else 1
        self._delete(keys=[list(row[:fields]) for row in rows])

    def _delete_range(self, ends: tuple[int, int]) -> None:
        self._delete(ranges=[ends])

    def _delete_region(self, ends: tuple[int, int | None, str]) -> None:
        low, high, part = ends
        region: dict[str, Any] = {"key": {"min": low, "max": high}}
        if self.kind.part == "row":
            region["part"] = {"min": part, "max": None}
        self._delete(regions=[region])

    def _delete(self, **which: Any) -> None:
        self.table.delete(**which)

    def _restore(self, back: int) -> None:
        # The version may have expired.
        with suppress(InvalidRequestError):
            self.table.restore(max(self.first, self.table.version - back))

    def _compact(self, _: None) -> None:
        compact(self.instance)

    def _collect(self, _: None) -> None:
        self.clock.pass_minutes(1)
        if self.kind.is_snapshot:
            self.table.expire_snapshots()
            self.clock.pass_minutes(1)
        collect_table(self.instance._ports, "rows")

    def _change_fields(self, how: str) -> None:
        names = [each.name for each in self.table.schema.values]
        text = next((name for name in names if name.startswith("text")), None)
        if how == "add":
            name = f"more-{self.table.version}"
            if "sleeper.table.aggregations" in self.kind.properties:
                self.table.add_field(name, "LongType", aggregation="sum")
            else:
                self.table.add_field(name, "LongType", default=7)
        elif text is not None and how == "drop":
            # An aggregation may need it.
            with suppress(InvalidRequestError):
                self.table.drop_field(text)
        elif text is not None:
            self.table.rename_field(text, f"text-{self.table.version}")

    def _undo(self, _: None) -> None:
        jobs = [e.job for e in self.table.history() if e.kind == "add_files" and e.job]
        # It may be undone, or a compaction, delete or restore after it may prevent it.
        with suppress(InvalidRequestError):
            if not self.kind.is_snapshot and jobs:
                self.table.undo(jobs[-1])

    def _empty(self, _: None) -> None:
        if not self.kind.is_snapshot:
            self.table.reinitialise()

    def _split(self, _: None) -> None:
        ports = self.instance._ports
        send_splits(ports, ports.table("rows").ref, {}, self.table.version)
        queue = ports.jobs.queue(QueueName.SPLITTING)
        for message in queue.receive():
            run_split_message(ports, message.body)
            queue.delete(message.receipt)

    def _refresh(self, name: str) -> None:
        self.stores[name].refresh()
        if self.cache is not None:
            with suppress(UnavailableError):  # the version was collected
                self.cache.get_many(self._keys())
            self.cache.refresh()

    def _reopen(self, name: str) -> None:
        self.stores[name].close()
        self.stores[name] = self._open(name)

    def _rebuild(self, name: str) -> None:
        store = self.stores[name]._store
        assert isinstance(store, OpenStore)
        store.updater.feed.rebuild()

    def _arrow(self, rows: list[Row]) -> pa.Table:
        """Returns rows of the fields that the table has now."""
        columns = dict(zip(FIELDS, zip(*rows, strict=True), strict=True))
        fields = (each.name for each in self.table.schema.fields)
        values = {name: columns.get(name.partition("-")[0]) for name in fields}
        return pa.table({n: list(v or range(len(rows))) for n, v in values.items()})

    def check(self) -> None:
        queried = self._queried()
        found = {name: self._content(store) for name, store in self.stores.items()}
        _check_last(found["disk"], queried)
        _check_last(found["memory"], queried)
        _check_last(found["part-0"] | found["part-1"], queried)
        assert len(found["part-0"]) + len(found["part-1"]) == len(queried)
        loaded = self._open("memory", "clean")
        _check_last(self._content(loaded), queried)
        for store in self.stores.values():
            assert store.refresh() == 0
        if self.cache is not None:
            self.cache.refresh()
            for _ in range(2):
                values = dict(zip(self._keys(), self.cache.get_many(self._keys()), strict=True))
                _check_last({k: v for k, v in values.items() if v is not None}, queried)

    def _keys(self) -> list[Any]:
        """All keys that the table may have, and some that it has not."""
        numbers = range(8)
        if self.kind.part == "row":
            return [(number, part) for number in numbers for part in "abc"]
        return list(numbers)

    def _content(self, store: AdjunctStore) -> dict[Any, Any]:
        store.refresh()
        found = dict(store.all())
        assert list(found) == sorted(found)
        assert store.get_many(list(found)) == list(found.values())
        return found

    def _queried(self) -> dict[Any, list[Any]]:
        """The rows of the last sort key of each row key, of which the store may have any."""
        schema = self.table.schema
        keys = [each.name for each in schema.row_keys]
        sort_keys = [each.name for each in schema.sort_keys]
        found: dict[Any, list[Any]] = {}
        for row in self.table.query().to_arrow().to_pylist():
            values = tuple(row.pop(name) for name in keys)
            rows = found.setdefault(values if len(values) > 1 else values[0], [])
            if any(rows[0][name] != row[name] for name in sort_keys if rows):
                rows.clear()
            rows.append(row)
        return found


def _check_last(found: dict[Any, Any], queried: dict[Any, list[Any]]) -> None:
    assert found.keys() == queried.keys()
    for key, value in found.items():
        assert value in queried[key]


@contextmanager
def opened(kind: Kind) -> Iterator[Subject]:
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder, ExitStack() as stack:
        path = Path(folder) / "instance"
        sleeper.create_instance(path).close()
        clock = FakeClock(system_clock())
        instance = stack.enter_context(sleeper.Instance(open_local_instance(path, clock)))
        yield Subject(instance, clock, kind, Path(folder), stack)


def _memory_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@pytest.fixture(params=["small", "large"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes each transaction a large one: applied to a copy, with keys that are not listed.

    Versions of snapshot tables are then built in this process, otherwise in a process of their own.
    """
    if request.param == "large":
        monkeypatch.setattr(adjunct_store, "_BUILD", ("/nonexistent",))
        monkeypatch.setattr(store_module, "_ATOMIC_BYTES", 1)
        monkeypatch.setattr(row_keys, "_KEY_REGIONS_MAX", 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("sizes")
@settings(
    max_examples=examples(2),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(history=steps)
def test_a_store_that_follows_equals_a_loaded_one_and_a_query(
    kind: str, history: list[tuple[str, Any]]
) -> None:
    with opened(KINDS[kind]) as subject:
        for name, argument in history:
            subject.run(name, argument)
        subject.check()
