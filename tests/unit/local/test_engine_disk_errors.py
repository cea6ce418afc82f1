"""SQLite and RocksDB acknowledge nothing if a sync of theirs fails, which strace injects."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.child_processes import python_path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace"),
]

# Prints what was acknowledged, and at last what is there.
STATE = """
import sys
from pathlib import Path
from sleeper.errors import UnavailableError
from sleeper.statestore.database import Database

database = Database(Path(sys.argv[1], "state.db"))
with database.writing() as connection:
    connection.execute("CREATE TABLE rows (number INTEGER)")
print("ready", flush=True)
for number in range(3):
    try:
        with database.writing() as connection:
            connection.execute("INSERT INTO rows VALUES (?)", (number,))
        print("written", number)
        if number == 1:
            database.vacuum()
    except UnavailableError:
        print("failed")
database.close()
for (number,) in Database(Path(sys.argv[1], "state.db")).read_rows("SELECT number FROM rows"):
    print("found", number)
"""
INSTANCE = """
import sys
from pathlib import Path
from sleeper.errors import UnavailableError
from sleeper.local.database import InstanceDatabase

database = InstanceDatabase(Path(sys.argv[1], "instance.db"))
database.create()
database.create_missing("rows", ["CREATE TABLE rows (number INTEGER)"])
print("ready", flush=True)
for number in range(3):
    try:
        with database.write() as connection:
            connection.execute("INSERT INTO rows VALUES (?)", (number,))
        print("written", number)
        if number == 1:
            database.vacuum()
    except UnavailableError:
        print("failed")
database.close()
for (number,) in InstanceDatabase(Path(sys.argv[1], "instance.db")).read("SELECT * FROM rows"):
    print("found", number)
"""
STORE = """
import sys
from pathlib import Path
from sleeper.adjunct.definition import EngineType
from sleeper.errors import SleeperError
from tests.unit.adjunct.test_store import Stores, content, writes

stores = Stores(Path(sys.argv[1]), EngineType.ROCKSDB)
store = stores.open()
print("ready", flush=True)
for number in range(3):
    try:
        store.build([writes({number: "a"})], lambda: stores.state(str(number)))
        print("written", number)
    except SleeperError:
        print("failed")
store.close()
store = stores.open()
if store.current is not None:
    for number in content(store):
        print("found", number)
"""


def run(script: str, folder: Path, fails_at: int) -> list[str]:
    """Runs the script, in which a sync fails once, and returns its lines."""
    folder.mkdir()
    command = ["strace", "--follow-forks", "--output=/dev/null", "--seccomp-bpf"]
    command += ["--trace=fsync,fdatasync", f"--inject=fsync,fdatasync:error=EIO:when={fails_at}"]
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [*command, sys.executable, "-c", script, str(folder)],
        env={**os.environ, "PYTHONPATH": python_path(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0 or "ready" not in lines, done.stderr
    return lines


def list_numbers(lines: list[str], word: str) -> list[str]:
    return [line.split()[1] for line in lines if line.startswith(f"{word} ")]


@pytest.mark.parametrize("script", [STATE, INSTANCE], ids=["state", "instance"])
def test_a_transaction_whose_sync_fails_is_not_acknowledged(script: str, tmp_path: Path) -> None:
    failures = 0
    for fails_at in range(5, 18):
        lines = run(script, tmp_path / str(fails_at), fails_at)
        failures += lines.count("failed")
        assert list_numbers(lines, "found") == list_numbers(lines, "written"), (fails_at, lines)
    assert failures >= 4


def test_a_store_whose_sync_fails_has_no_version(tmp_path: Path) -> None:
    failures = 0
    # How many syncs make the store's folder durable depends on the folders above it.
    for fails_at in range(5, 12):
        lines = run(STORE, tmp_path / str(fails_at), fails_at)
        failures += lines.count("failed")
        assert list_numbers(lines, "found") == list_numbers(lines, "written")[-1:]
    assert failures >= 1
