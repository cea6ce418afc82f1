"""The start of a store that follows a table: what is read again, and what survives a crash."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.adjunct.definition import DAY_SECONDS, EngineType, Partition, StoreDefinition
from sleeper.adjunct.engines.rocksdb import RocksDbEngine
from sleeper.adjunct.feeds.opening import FeedContext
from sleeper.adjunct.inputs.table import TableInput
from sleeper.adjunct.open_store import Filling, Mode, OpenStore, UpdateSettings
from sleeper.adjunct.versions.version import StoreReader
from sleeper.errors import UnavailableError
from sleeper.garbage_collection.service import collect_table
from tests.clock import FakeClock
from tests.tables.opened import compact
from tests.unit.adjunct.hanging_process import HANGS

SCHEMA = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [{"name": "name", "type": "StringType"}],
}
PROPERTIES = {"sleeper.table.rows": "latest", "sleeper.table.gc.delay.minutes": "0"}


def add(table: sleeper.Table, *keys: int) -> int:
    """Adds rows, and returns the transaction number."""
    table.ingest(pa.table({"id": list(keys), "name": [f"name-{key}" for key in keys]}))
    return table.version


def rows(*keys: int) -> dict[int, Any]:
    return {key: {"name": f"name-{key}"} for key in keys}


@dataclass
class Subject:
    """A table and a store. `consumed` is what the last start read: a load, or transactions."""

    instance: sleeper.Instance
    table: sleeper.Table
    folder: Path
    clock: FakeClock
    consumed: list[str] = field(default_factory=list)

    @contextmanager
    def opened(self, **changes: Any) -> Iterator[OpenStore]:
        definition = StoreDefinition("accounts", **{"input": "table:accounts", **changes})
        context = FeedContext(lambda: self.instance._ports)
        settings = UpdateSettings(None, 0, self.clock)
        self.consumed.clear()
        filling = Filling(definition, lambda: nullcontext(context))
        store = OpenStore("accounts", self.folder, Mode.FILL, settings, filling)
        if not definition.bootstrap:
            store.refresh()
        try:
            yield store
        finally:
            store.close()

    def lose(self) -> None:
        """Loses the versions of the store; the saved positions remain."""
        for each in self.folder.glob("accounts/v-*"):
            shutil.rmtree(each)


@pytest.fixture
def subject(
    clock: FakeClock, instance: sleeper.Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Subject:
    table = instance.create_table("accounts", SCHEMA, PROPERTIES)
    add(table, 1, 2, 3)
    made = Subject(instance, table, tmp_path / "stores", clock)
    load, read_changes = TableInput.open, TableInput.changes

    def record_load(self: TableInput, dataset: str) -> Any:
        made.consumed.append("load")
        return load(self, dataset)

    def record_changes(self: TableInput, *arguments: Any) -> Any:
        for each in read_changes(self, *arguments):
            made.consumed.append(str(each.number))
            yield each

    monkeypatch.setattr(TableInput, "open", record_load)
    monkeypatch.setattr(TableInput, "changes", record_changes)
    return made


def content(store: OpenStore | StoreReader) -> dict[int, Any]:
    return dict(store.serving.scan())


# The cells of the table of recovery


@dataclass(frozen=True)
class Cell:
    """What a second start finds. It reads a load, or else the transaction after the first start."""

    found: str
    bootstrap: bool
    is_loaded: bool
    is_incomplete: bool = False
    type: EngineType = EngineType.ROCKSDB
    reset: bool = False


CELLS = {
    "no store, bootstrap": Cell("none", True, True),
    "no store, no bootstrap": Cell("none", False, False, True),
    "not valid, bootstrap": Cell("old", True, True),
    "not valid, no bootstrap": Cell("old", False, False, True),
    "valid, bootstrap": Cell("valid", True, False),
    "valid, no bootstrap": Cell("valid", False, False),
    "memory, bootstrap": Cell("valid", True, True, type=EngineType.MEMORY),
    "memory, no bootstrap": Cell("valid", False, False, True, EngineType.MEMORY),
    "memory, offsets reset": Cell("valid", False, True, False, EngineType.MEMORY, True),
    "not valid, offsets reset": Cell("old", False, True, reset=True),
}


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_recovery(subject: Subject, cell: Cell) -> None:
    how = {"bootstrap": cell.bootstrap, "type": cell.type, "reset_offset": cell.reset}
    with subject.opened(**how) as store:
        # There is no position yet, so a store without bootstrap begins with the oldest data too.
        assert subject.consumed == ["load"]
        assert content(store) == rows(1, 2, 3)
        assert not store.status().incomplete
    number = add(subject.table, 4)
    if cell.found == "none":
        subject.lose()
    elif cell.found == "old":
        subject.clock.now_ms += (DAY_SECONDS + 1) * 1000
    with subject.opened(**how) as store:
        assert subject.consumed == (["load"] if cell.is_loaded else [str(number)])
        assert store.status().incomplete is cell.is_incomplete
        assert content(store) == (rows(4) if cell.is_incomplete else rows(1, 2, 3, 4))


def test_a_store_that_lacks_history_is_loaded_with_bootstrap(
    subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    with subject.opened():
        pass
    subject.lose()
    add(subject.table, 4)
    with subject.opened(bootstrap=False) as store:
        assert content(store) == rows(4)
    with subject.opened() as store:
        assert content(store) == rows(1, 2, 3, 4)
        assert not store.status().incomplete
    assert "created again: it lacks history" in caplog.text


def test_a_store_whose_input_has_nothing_new_does_not_grow_old(subject: Subject) -> None:
    with subject.opened():
        pass
    for _ in range(4):
        subject.clock.now_ms += DAY_SECONDS * 1000 // 2
        with subject.opened():
            assert subject.consumed == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"partition": Partition(0, 1)}, r"its partition was None \(expected 0/1\)"),
        ({"max_age_seconds": 1.0}, r"it was last updated 2 s ago \(expected at most 1 s\)"),
        ({"input": "table:others"}, r"its input was table:accounts \(expected table:others\)"),
    ],
)
def test_a_store_that_is_not_valid_is_created_again(
    subject: Subject, changes: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    add(subject.instance.create_table("others", SCHEMA), 1, 2, 3)
    with subject.opened():
        pass
    subject.clock.now_ms += 2_000
    with subject.opened(**changes) as store:
        assert subject.consumed == ["load"]
        assert content(store) == rows(1, 2, 3)
    assert len(caplog.records) == 1
    assert re.search(rf"store accounts is created again: {reason}", caplog.text)


@pytest.mark.parametrize("bootstrap", [True, False])
def test_a_trimmed_input_is_loaded_and_never_skipped(
    subject: Subject, bootstrap: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with subject.opened(bootstrap=bootstrap):
        pass
    add(subject.table, 4)
    trim(subject)
    add(subject.table, 5)
    with subject.opened(bootstrap=bootstrap) as store:
        assert subject.consumed == ["load"]
        assert content(store) == rows(1, 2, 3, 4, 5)
    assert "keeps changes from transaction" in caplog.text


def test_an_input_that_is_trimmed_while_the_store_is_open_is_loaded(subject: Subject) -> None:
    with subject.opened() as store:
        add(subject.table, 4)
        trim(subject)
        subject.consumed.clear()
        store.refresh()
        assert subject.consumed == ["load"]
        assert content(store) == rows(1, 2, 3, 4)


def trim(subject: Subject) -> None:
    """Deletes the changes of the table that a store might still need."""
    compact(subject.instance, "accounts")
    subject.clock.pass_minutes(60)
    collect_table(subject.instance._ports, "accounts")


def test_a_table_that_was_created_again_is_loaded(
    subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    with subject.opened():
        pass
    subject.instance.delete_table("accounts")
    add(subject.instance.create_table("accounts", SCHEMA, PROPERTIES), 9)
    with subject.opened() as store:
        assert content(store) == rows(9)
    assert "was deleted and created again" in caplog.text


def test_a_table_that_went_back_is_loaded(
    subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    # The log of a table that was restored from an old backup is shorter than what was read of it.
    with subject.opened() as store:
        change_state(store, positions={**store.serving.state.positions, "number": "1000"})
    with subject.opened() as store:
        assert subject.consumed == ["load"]
        assert content(store) == rows(1, 2, 3)
    assert "went back: its newest transaction" in caplog.text


def test_a_store_that_was_closed_has_saved_its_positions(subject: Subject) -> None:
    with subject.opened() as store:
        add(subject.table, 4)
        store.refresh()
        state = store.serving.state
    saved = json.loads((subject.folder / "accounts" / "positions.json").read_text())
    assert saved == dict(state.positions)


def change_state(store: OpenStore, **members: Any) -> None:
    """Changes what the version knows of itself."""
    engine = store.serving.engine
    engine.apply((), json.dumps({**json.loads(engine.state() or b""), **members}).encode())


# Damage and crashes


@pytest.mark.slow
def test_a_torn_folder_is_made_again_or_has_the_right_content(subject: Subject) -> None:
    with subject.opened():
        pass
    add(subject.table, *range(4, 3_000))
    with subject.opened():
        pass
    whole = subject.folder.parent / "whole"
    shutil.copytree(subject.folder, whole)
    expected = rows(*range(1, 3_000))
    files = [each.relative_to(whole) for each in whole.rglob("*") if each.is_file()]
    assert len(files) > 8
    for name in files:
        for tear in (Path.unlink, halve, scramble):
            shutil.rmtree(subject.folder)
            shutil.copytree(whole, subject.folder)
            tear(subject.folder / name)
            with subject.opened() as store:
                assert content(store) == expected, (name, tear)
                assert store.serving.get(2_999) == {"name": "name-2999"}
            leftover = sorted(each.name for each in subject.folder.glob("accounts/v-*"))
            assert len(leftover) == 1, (name, tear)


def halve(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def scramble(path: Path) -> None:
    path.write_bytes(bytes(len(path.read_bytes()) or 1))


def test_a_newer_format_is_made_again(subject: Subject, caplog: pytest.LogCaptureFixture) -> None:
    with subject.opened() as store:
        change_state(store, format=99)
    with subject.opened() as store:
        assert content(store) == rows(1, 2, 3)
    assert "format 99 is of a newer version of Sleeper (expected at most 2)" in caplog.text


ENGINE = "sleeper.adjunct.engines.rocksdb:RocksDbEngine"
FOLDER, STORE = (
    "sleeper.adjunct.versions.folder:StoreFolder",
    "sleeper.adjunct.versions.store:Store",
)
STEPS = {
    "before a version": f"{FOLDER}.new_version",
    "in mid-load": f"{ENGINE}._load!",
    "after its data": f"{ENGINE}.load!",
    "before its state": f"{STORE}.finish_build",
    "before it is durable": f"{ENGINE}.sync",
    "before its seal": f"{FOLDER}.seal",
    "after its seal": f"{FOLDER}.seal!",
    "after the switch": f"{FOLDER}.switch!",
    "before the former is deleted": f"{FOLDER}.delete_others",
    "before the positions": f"{FOLDER}.write_positions",
}


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("has_former", [False, True], ids=["first load", "next load"])
def test_a_process_that_is_killed_leaves_nothing_half(
    subject: Subject, step: str, has_former: bool
) -> None:
    before: dict[int, Any] = {}
    if has_former:
        with subject.opened() as store:
            before = content(store)
        # All rows are replaced, so the next version is loaded.
        version = subject.table.version
        add(subject.table, 9)
        subject.table.restore(version)
        add(subject.table, 4, 5)
    # A transaction before the replacement is applied to the version that serves.
    changed = {**before, **rows(9)}
    expected = rows(1, 2, 3, 4, 5) if has_former else rows(1, 2, 3)
    # The first call of `delete_others` comes when a folder is opened.
    call = 2 if "delete_others" in step else 1
    kill_at(subject, step, call)
    reader = StoreReader(subject.folder, "accounts")
    if reader.current is not None:
        assert content(reader) in (before, changed, expected)
    else:
        assert not has_former
    reader.close()
    with subject.opened() as store:
        assert content(store) == expected
        assert len(list(subject.folder.glob("accounts/v-*"))) == 1


def kill_at(subject: Subject, step: str, call: int) -> None:
    where = [str(subject.folder), subject.instance._ports.where, step, str(call)]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.unit.adjunct.hanging_process", *where],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == HANGS
        process.kill()


@pytest.mark.parametrize("method", ["load", "apply", "sync"])
def test_a_full_disk_keeps_the_version_that_serves(
    subject: Subject, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subject.opened() as store:
        add(subject.table, 5)
        store.updater.feed.rebuild()
        with monkeypatch.context() as patch:
            patch.setattr(RocksDbEngine, method, full_disk)
            with pytest.raises(UnavailableError, match="No space left on device"):
                store.refresh()
            assert content(store) == rows(1, 2, 3)
            assert "No space left" in (store.status().problem or "")
        assert [each.name for each in subject.folder.glob("accounts/v-*")] == ["v-1"]
        store.refresh()
        assert content(store) == rows(1, 2, 3, 5)
        assert store.status().problem is None


def full_disk(*_: Any, **__: Any) -> None:
    raise UnavailableError("store: IO error: No space left on device: While appending to file")
