"""The documented ways to copy a table from a stash and its change feed."""

import itertools
import json
import random
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from docs.examples import bootstrap
from sleeper.stash.run import run_stash
from tests.tables.opened import compact_fully

pytestmark = pytest.mark.slow

SCHEMA = {
    "rowKeyFields": [{"name": "key", "type": "StringType"}],
    "sortKeyFields": [{"name": "sort", "type": "LongType"}],
    "valueFields": [{"name": "~value", "type": "LongType"}],
}
PROPERTIES = {
    "unique": {},
    "bag": {},
    "upserts": {"sleeper.table.rows": "latest"},
    "snapshot": {"sleeper.table.type": "snapshot"},
}
"""Kinds of tables: plain rows, whose keys are unique or not, rows that change, and whole loads."""
KEYS = [(f"key {k:02}", s) for k in range(20) for s in range(2)]
Rows = list[dict[str, Any]]


class Writer:
    """Changes a table in one of its ways. Every row has a value of its own."""

    def __init__(self, table: sleeper.Table, kind: str, seed: int) -> None:
        self.table = table
        self._kind = kind
        self._random = random.Random(seed)
        self._values = itertools.count()
        self._live: set[tuple[str, int]] = set()

    def step(self) -> None:
        """Makes one random change."""
        if self._kind == "snapshot" or self._random.random() < 0.6:
            self._ingest()
        else:
            self._delete()
        if self._random.random() < 0.15:
            compact_fully(self.table._instance, self.table.name)

    def _ingest(self) -> None:
        keys = self._random.sample(KEYS, 12)
        if self._kind == "unique":
            keys = [key for key in keys if key not in self._live] or [("extra", next(self._values))]
        if self._kind == "bag":
            keys += keys[:3]
        self._live.update(keys)
        rows = [{"key": k, "sort": s, "~value": next(self._values)} for k, s in keys]
        if self._kind == "upserts":
            for row, op in zip(rows, self._random.choices("ud", (5, 1), k=len(rows)), strict=True):
                row["op"] = op
            self.table.ingest(pa.Table.from_pylist(rows), op_column="op")
        else:
            self.table.ingest(pa.Table.from_pylist(rows))

    def _delete(self) -> None:
        low, high = sorted(self._random.sample(range(20), 2))
        if self._random.random() < 0.5:
            self.table.delete(ranges=[(f"key {low:02}", f"key {high:02}")])
            deleted = {key for key in self._live if f"key {low:02}" <= key[0] < f"key {high:02}"}
        else:
            # Keys in a file, unlike a few keys, which become regions.
            keys = pa.table({"key": [f"key {k:02}" for k in range(low, high)]})
            self.table.delete(keys=keys)
            deleted = {key for key in self._live if key[0] in keys.column("key").to_pylist()}
        self._live -= deleted


class Place:
    """A table, a destination and a copy."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.where, self.destination = str(folder / "instance"), str(folder / "stash")
        self.copy = str(folder / "copy.db")
        self.instance = sleeper.create_instance(
            folder / "instance", {"sleeper.engine.threads": "1"}
        )
        self.table = self.instance.create_table(
            "a:b", SCHEMA, properties=PROPERTIES[kind], split_points=["key 05", "key 10", "key 15"]
        )

    def stash(self) -> None:
        run_stash(self.instance._ports, self.destination, piece_bytes=1)

    def follow(self) -> None:
        bootstrap.follow(self.where, "a:b", self.copy)

    def load(self) -> None:
        bootstrap.load(self.destination, "a:b", self.copy)

    def defer(self) -> None:
        bootstrap.defer(self.where, "a:b", self.destination, self.copy)

    def copied(self) -> list[str]:
        """The rows of the copy."""
        with closing(sqlite3.connect(self.copy)) as database:
            return sorted(row for (row,) in database.execute("SELECT content FROM rows"))

    def expected(self) -> list[str]:
        """The rows of the table."""
        rows: Rows = self.table.query().to_arrow().to_pylist()
        return sorted(json.dumps(row) for row in rows)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path, request.param)
    with made.instance:
        yield made


def rows(*values: tuple[str, int]) -> pa.Table:
    """A row for each key and value."""
    return pa.table(
        {"key": [k for k, _ in values], "sort": [0] * len(values), "~value": [v for _, v in values]}
    )


@pytest.mark.parametrize("place", ["unique", "upserts", "snapshot"], indirect=True)
def test_a_row_of_a_stash_replaces_no_newer_row_and_restores_no_deleted_one(
    place: Place, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, kind = place.table, request.node.callspec.params["place"]
    table.ingest(rows(*((f"key {k:02}", k) for k in range(6))))
    place.stash()
    if kind == "snapshot":
        table.ingest(rows(("key 00", 100), ("key 05", 5), ("new", 6)))
    else:
        table.delete(keys=[("key 01",)])
        table.delete(keys=pa.table({"key": ["key 02"]}))
        table.delete(ranges=[("key 03", "key 05")])
        if kind == "unique":
            table.delete(keys=[("key 00",)])
        table.ingest(rows(("key 00", 100), ("key 03", 3)))
    place.follow()
    with interrupted(monkeypatch, "repeat_deletes", 2):
        place.load()
    assert len(place.copied()) >= 3
    place.load()
    assert place.copied() == place.expected()
    place.load()
    place.follow()
    assert place.copied() == place.expected()


@contextmanager
def interrupted(monkeypatch: pytest.MonkeyPatch, name: str, call: int) -> Iterator[None]:
    """Interrupts the nth call of a method of the copy."""
    calls, method = itertools.count(1), getattr(bootstrap.Copy, name)

    def called(*arguments: Any, **named: Any) -> Any:
        if next(calls) == call:
            raise KeyboardInterrupt
        return method(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(bootstrap.Copy, name, called)
        with pytest.raises(KeyboardInterrupt):
            yield


@pytest.mark.parametrize("place", ["unique", "upserts", "snapshot"], indirect=True)
def test_the_version_check_copies_a_table_that_changes_throughout(
    place: Place, request: pytest.FixtureRequest
) -> None:
    writer = Writer(place.table, request.node.callspec.params["place"], seed=14)
    writer.step()
    place.follow()
    is_written = threading.Event()

    def follow() -> None:
        while not is_written.is_set():
            place.follow()

    def load() -> None:
        place.stash()
        place.load()

    with ThreadPoolExecutor() as threads:
        following = threads.submit(follow)
        try:
            for _ in range(4):
                writer.step()
            loading = threads.submit(load)
            steps = 0
            while steps < 8 or not loading.done():
                writer.step()
                steps += 1
            loading.result()
        finally:
            is_written.set()
        following.result()
    place.follow()
    assert place.copied() == place.expected()


@pytest.mark.parametrize("place", ["bag", "upserts", "snapshot"], indirect=True)
def test_a_deferred_feed_copies_a_table_that_changes_throughout(
    place: Place, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(place.table, request.node.callspec.params["place"], seed=15)
    for _ in range(4):
        writer.step()
    with ThreadPoolExecutor() as threads:
        stashing = threads.submit(place.stash)
        steps = 0
        while steps < 4 or not stashing.done():
            writer.step()
            steps += 1
        stashing.result()
    # The stash may have all of the changes so far.
    for _ in range(3):
        writer.step()
    for call in (1, 3):
        with interrupted(monkeypatch, "set_number", call):
            place.defer()
        # The load is one transaction, unlike the changes.
        assert call != 1 or place.copied() == []
        writer.step()
    place.defer()
    assert place.copied() == place.expected()
    writer.step()
    place.defer()
    assert place.copied() == place.expected()


@pytest.mark.parametrize("place", ["unique"], indirect=True)
def test_a_stash_from_before_the_feed_is_refused(place: Place) -> None:
    place.table.ingest(rows(("key 00", 1)))
    place.stash()
    with pytest.raises(SystemExit, match="run `follow` first"):
        place.load()
    place.table.ingest(rows(("key 01", 2)))
    with place.table.changes(from_number=place.table.version + 1, follower=bootstrap.FOLLOWER):
        pass
    place.follow()
    for read in (place.load, place.defer):
        with pytest.raises(SystemExit, match="the stash is too old: it ends at 2, and"):
            read()
    assert place.copied() == []
