"""Queries and reports of a read-only folder and on a full disk."""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from sleeper.ingest.service import ingest_rows
from sleeper.local.instance import create_local_instance, open_local_instance
from tests.system.bad_days import make_table

_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE = 1
COMMAND = (sys.executable, "-c", "from sleeper.cli.main import main; main()")
COMMANDS = (
    ("table", "list"),
    ("report", "all"),
    ("query", "rows", "--key", "a"),
    ("sql", "SELECT count(*) AS n FROM rows"),
)


def drop_privileges() -> None:
    """Drops privileges, because root ignores file modes."""
    ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0)


def fill_disk() -> None:
    """No file can grow: every write fails."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def sleeper(folder: Path, *arguments: str, full_disk: bool = False) -> str:
    process = subprocess.run(
        [*COMMAND, "--instance", str(folder), *arguments],
        # Pipes, which a limit of file sizes does not concern.
        capture_output=True,
        text=True,
        preexec_fn=fill_disk if full_disk else drop_privileges,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def close_folder(folder: Path, is_open: bool = False) -> None:
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755 if is_open else 0o555)
        else:
            path.chmod(0o644 if is_open else 0o444)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    create_local_instance(tmp_path / "instance", "test")
    instance = open_local_instance(tmp_path / "instance")
    make_table(instance)
    ingest_rows(
        instance, "rows", [pa.RecordBatch.from_pydict({"k": ["a"], "n": pa.array([1], pa.int32())})]
    )
    instance.close()
    return tmp_path / "instance"


@pytest.mark.skipif(os.name != "posix", reason="modes and limits of POSIX")
def test_a_read_only_folder_can_be_read(folder: Path) -> None:
    close_folder(folder)
    try:
        for command in COMMANDS:
            assert sleeper(folder, *command)
    finally:
        close_folder(folder, is_open=True)


def test_a_read_only_folder_that_a_writer_has_open_can_be_read(folder: Path) -> None:
    instance = open_local_instance(folder)
    rows = pa.RecordBatch.from_pydict({"k": ["b"], "n": pa.array([2], pa.int32())})
    ingest_rows(instance, "rows", [rows])
    close_folder(folder)
    try:
        result = sleeper(folder, "sql", "SELECT count(*) AS n FROM rows", "--format", "json")
        assert json.loads(result) == {"n": 2}
    finally:
        close_folder(folder, is_open=True)
        instance.close()


OPENED_READ_ONLY = """
import pathlib, sys
from sleeper.errors import UnavailableError
from sleeper.local.database import InstanceDatabase
from sleeper.statestore.database import Database

folder, writes_twice = pathlib.Path(sys.argv[1]), sys.argv[2] == "True"
(path,) = folder.rglob("state.db")
state, instance = Database(path), InstanceDatabase(folder / "instance.db")


def read_state():
    with state.reading() as connection:
        connection.execute("SELECT number FROM position").fetchone()


def read_instance():
    instance.read("SELECT * FROM tables")


def refuse(writing):
    try:
        with writing() as connection:
            connection.execute("CREATE TABLE refused (n)")
            raise AssertionError("written")
    except UnavailableError:
        pass


for path, read, writing in (
    (state.path, read_state, state.writing),
    (instance.path, read_instance, instance.write),
):
    files = [path.with_name(path.name + end) for end in ("", "-wal", "-shm")]
    for file in files:
        file.chmod(0o444)
    read()
    if writes_twice:
        refuse(writing)
    for file in files:
        file.chmod(0o644)
    if not writes_twice and path == state.path:
        # The reader has mapped the -shm file as read-only.
        refuse(writing)
    with writing() as connection:
        connection.execute("CREATE TABLE written (n)")
    read()
"""


@pytest.mark.parametrize("writes_twice", [True, False])
def test_a_database_that_was_read_only_when_it_was_opened_is_written_later(
    folder: Path, writes_twice: bool
) -> None:
    # It keeps the -wal and -shm files of the databases.
    instance = open_local_instance(folder)
    rows = pa.RecordBatch.from_pydict({"k": ["b"], "n": pa.array([2], pa.int32())})
    ingest_rows(instance, "rows", [rows])
    subprocess.run(
        (sys.executable, "-c", OPENED_READ_ONLY, str(folder), str(writes_twice)),
        preexec_fn=drop_privileges,
        check=True,
        timeout=60,
    )
    instance.close()


def test_a_folder_on_a_full_disk_can_be_read(folder: Path) -> None:
    for command in COMMANDS:
        assert sleeper(folder, *command, full_disk=True)
