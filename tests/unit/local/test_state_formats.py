"""Opening an instance of an older version: announced, refused or converted, and the way back."""

import os
import pty
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from sleeper import UPGRADE_VARIABLE
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.statestore import conversion
from sleeper.statestore.fold_tables import FOLD_FORMAT_VERSION
from tests.older_formats import make_format_3

SCHEMA = {"rowKeyFields": [{"name": "k", "type": "LongType"}], "valueFields": []}
PROGRAM = (sys.executable, "-c", "from sleeper.cli.main import main; main()")
ANNOUNCEMENT = "1 table state of format 3, which this version of Sleeper must convert"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An instance of an older version with a table of four rows."""
    folder = tmp_path_factory.mktemp("older") / "instance"
    with sleeper.create_instance(folder) as instance:
        instance.create_table("t", SCHEMA).ingest(pa.table({"k": [1, 2, 3, 4]}))
        instance.create_table("deleted", SCHEMA)
        instance.delete_table("deleted")
    make_format_3(state_path(folder))
    with closing(sqlite3.connect(folder / "instance.db", isolation_level=None)) as database:
        database.execute("DROP TABLE state_formats")
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "instance"))


def state_path(folder: Path) -> Path:
    with closing(sqlite3.connect(folder / "instance.db")) as database:
        ((table_id,),) = database.execute("SELECT id FROM tables WHERE name = 't'")
    return folder / table_id / "state.db"


def copy_of(folder: Path) -> Path:
    return state_path(folder).with_name("state.db.format-3")


def content(path: Path) -> list[str]:
    """Returns the format, and the SQL of all tables and rows."""
    with closing(sqlite3.connect(path)) as state:
        ((version,),) = state.execute("PRAGMA user_version")
        return [str(version), *state.iterdump()]


def keys(instance: sleeper.Instance) -> list[int]:
    column: list[int] = instance.table("t").query().to_arrow()["k"].to_pylist()
    return column


def test_an_older_instance_is_refused_unchanged(folder: Path) -> None:
    before = content(state_path(folder))
    with pytest.raises(InvalidRequestError, match=ANNOUNCEMENT) as refusal:
        sleeper.open_instance(folder)
    for way in ("--upgrade", "upgrade=True", "SLEEPER_UPGRADE=1", "docs/upgrades.md"):
        assert way in str(refusal.value)
    assert content(state_path(folder)) == before
    assert not copy_of(folder).exists()


def by_argument(folder: Path, _: pytest.MonkeyPatch) -> None:
    sleeper.open_instance(folder, upgrade=True).close()


def by_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(UPGRADE_VARIABLE, "true")
    sleeper.open_instance(folder).close()
    monkeypatch.delenv(UPGRADE_VARIABLE)


def by_option(folder: Path, _: pytest.MonkeyPatch) -> None:
    command = [*PROGRAM, "--instance", str(folder), "table", "list"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert ANNOUNCEMENT in refused.stderr
    command.insert(len(PROGRAM), "--upgrade")
    subprocess.run(command, capture_output=True, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("upgrade", [by_argument, by_variable, by_option])
def test_an_accepted_upgrade_keeps_a_copy_and_the_way_back(
    folder: Path, upgrade: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(upgrade)
    before = content(state_path(folder))
    upgrade(folder, monkeypatch)
    assert content(copy_of(folder)) == before
    assert content(state_path(folder))[0] == str(FOLD_FORMAT_VERSION)
    with sleeper.open_instance(folder) as instance:
        instance.table("t").ingest(pa.table({"k": [5]}))
        assert keys(instance) == [1, 2, 3, 4, 5]
    # The way back of docs/upgrades.md.
    shutil.copy(copy_of(folder), state_path(folder))
    for suffix in ("-wal", "-shm"):
        state_path(folder).with_name(f"state.db{suffix}").unlink(missing_ok=True)
    assert content(state_path(folder)) == before
    # The instance's database says that the states are converted.
    with (
        sleeper.open_instance(folder) as instance,
        pytest.raises(InvalidRequestError, match=ANNOUNCEMENT),
    ):
        instance.table("t").query().to_arrow()
    with sleeper.open_instance(folder, upgrade=True) as instance:
        assert keys(instance) == [1, 2, 3, 4]


def test_states_are_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper.open_instance(folder, upgrade=True).close()
    monkeypatch.setattr("sleeper.local.state_formats._find_older", pytest.fail)
    sleeper.open_instance(folder).close()
    sleeper.create_instance(folder.with_name("new")).close()


def test_a_copy_that_fails_leaves_the_state(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Iterator[Path]:
        raise OSError(28, "No space left on device")

    before = content(state_path(folder))
    monkeypatch.setattr(conversion, "replacing_file", full)
    with pytest.raises(UnavailableError, match="No space left"):
        sleeper.open_instance(folder, upgrade=True)
    assert content(state_path(folder)) == before


def test_the_copy_is_durable_before_the_conversion(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, str]] = []
    convert = conversion.create_tables

    def look(connection: sqlite3.Connection) -> None:
        seen.append((copy_of(folder).exists(), content(state_path(folder))[0]))
        convert(connection)

    synced: list[str] = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(name_of(file)), sync(file)))
    monkeypatch.setattr(conversion, "create_tables", look)
    sleeper.open_instance(folder, upgrade=True).close()
    assert seen == [(True, "3")]
    copied = synced.index("state.db.format-3.unfinished")
    assert synced[copied + 1] == copy_of(folder).parent.name


def name_of(descriptor: int) -> str:
    return Path(os.readlink(f"/proc/self/fd/{descriptor}")).name


def test_a_read_only_opening_converts_nothing(folder: Path) -> None:
    before = content(state_path(folder))
    with sleeper.open_instance(folder, read_only=True, upgrade=True) as instance:
        with pytest.raises(InvalidRequestError, match="read-only"):
            instance.table("t").query().to_arrow()
        assert list(instance) == ["t"]
    assert content(state_path(folder)) == before
    assert not copy_of(folder).exists()


def test_a_purge_deletes_copies(folder: Path) -> None:
    with sleeper.open_instance(folder, upgrade=True) as instance:
        assert copy_of(folder).exists()
        assert instance._ports.tables.state(state_path(folder).parent.name).vacuum()
        assert not copy_of(folder).exists()


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "is_converted"), [("y", True), ("n", False)])
def test_a_terminal_is_asked(folder: Path, answer: str, is_converted: bool) -> None:
    ours, theirs = pty.openpty()
    command = [*PROGRAM, "--instance", str(folder), "table", "list"]
    process = subprocess.Popen(command, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE)
    os.close(theirs)
    shown = b""
    try:
        while b"Convert now?" not in shown:
            shown += os.read(ours, 1000)
        os.write(ours, f"{answer}\n".encode())
        while process.poll() is None:
            try:
                shown += os.read(ours, 1000)
            except OSError:  # the terminal's last process has ended
                process.wait()
    finally:
        process.communicate()
        os.close(ours)
    assert b"1 table state of format 3" in shown
    assert (process.returncode == 0) == is_converted
    assert copy_of(folder).exists() == is_converted
