"""`sleeper adjunct run` and the task on AWS as processes: stops, kills, and read-only readers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.adjunct.versions.folder import StoreFolder
from tests.system.test_read_only_folder import COMMAND, close_folder, drop_privileges

ROWS = 300_000
SCHEMA = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [{"name": "name", "type": "StringType"}],
}
TASK = (sys.executable, "-m", "sleeper.adjunct.worker_task")


@pytest.fixture
def where(tmp_path: Path) -> Path:
    """An instance with a table that takes a while to load."""
    folder = tmp_path / "here"
    sleeper.create_instance(folder)
    with sleeper.open_instance(folder) as instance:
        table = instance.create_table("accounts", SCHEMA, {"sleeper.table.rows": "latest"})
        table.ingest(rows(0, ROWS))
    return folder


def rows(start: int, count: int) -> pa.Table:
    ids = range(start, start + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"account {each}" for each in ids]})


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@contextmanager
def running(*command: str, **variables: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def filling(where: Path) -> Any:
    store = ("--store", "accounts", "--input", "table:accounts", "--every", "0.05")
    return running(*COMMAND, "--instance", str(where), "adjunct", "run", *store)


def run(where: Path, *arguments: str, **more: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, "--instance", str(where), "adjunct", *arguments],
        capture_output=True,
        text=True,
        check=False,
        **more,
    )


def status_of(where: Path) -> dict[str, Any]:
    result = run(where, "status", "accounts", "--output", "json")
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def is_building(store: Path) -> bool:
    return any(store.glob("v-*/data/*.sst"))


def keys_of(where: Path) -> int:
    result = run(where, "get", "accounts", "--all")
    assert result.returncode == 0, result.stderr
    return len(result.stdout.splitlines())


def test_sigterm_ends_a_run_also_during_a_load(where: Path) -> None:
    store = where / "adjunct" / "accounts"
    with filling(where) as process:
        wait_until(lambda: is_building(store))
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
        assert (process.returncode, said.splitlines()[-1]) == (0, "stopped")
    with filling(where) as process:
        # The first process may have been faster than the signal.
        folder = StoreFolder(store.parent, store.name)
        wait_until(lambda: folder.is_locked() and (store / "current").exists())
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert keys_of(where) == ROWS


def test_a_killed_load_is_begun_again_and_never_seen(where: Path) -> None:
    store = where / "adjunct" / "accounts"
    with filling(where) as process:
        wait_until(lambda: is_building(store))
        process.kill()
        process.communicate()
        # The process may have been faster.
        if not (store / "current").exists():
            missing = run(where, "get", "accounts", "1")
            assert missing.returncode == 1
            assert "no complete version" in missing.stderr
            assert status_of(where)["state"] == "no complete version"
    with filling(where):
        wait_until(lambda: (store / "current").exists())
        assert keys_of(where) == ROWS
    with sleeper.open_instance(where) as instance:
        instance.table("accounts").ingest(rows(ROWS, 10))
    # A killed process has left its version, and the next one follows it.
    with filling(where):
        wait_until(lambda: keys_of(where) == ROWS + 10)
        wait_until(lambda: status_of(where)["lag"] == 0)
    assert len(list(store.glob("v-*"))) == 1


def test_a_process_without_write_permission_reads_a_store(where: Path) -> None:
    assert run(where, "run", "--store", "accounts", "--input", "table:accounts", "--until-current")
    store = where / "adjunct"
    (config,) = store.glob("accounts/v-*/data/rocksdict-config.json")
    assert config.stat().st_mode & 0o022 == 0
    close_folder(store)
    try:
        for arguments in (("get", "accounts", "7"), ("status", "accounts"), ("list",)):
            result = run(where, *arguments, preexec_fn=drop_privileges)
            assert result.returncode == 0, result.stderr
            assert "account" in result.stdout
    finally:
        close_folder(store, is_open=True)


def test_the_task_fills_stores_and_tells_its_health(where: Path, tmp_path: Path) -> None:
    stores = tmp_path / "stores"
    variables = {
        "SLEEPER_INSTANCE": str(where),
        "SLEEPER_ADJUNCT_STORES": "accounts=table:accounts again=table:accounts",
        "SLEEPER_ADJUNCT_PATH": str(stores),
    }

    def check() -> int:
        environment = {**os.environ, **variables}
        return subprocess.run([*TASK, "check"], env=environment, check=False).returncode

    assert check() == 1
    with running(*TASK, **variables) as process:
        wait_until(
            lambda: all((stores / each / "current").exists() for each in ("accounts", "again"))
        )
        assert check() == 0
        process.send_signal(signal.SIGTERM)
        said, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    lines = [json.loads(line) for line in said.splitlines()]
    assert any(f"loaded {ROWS} keys" in line["message"] for line in lines)
    result = run(where, "get", "again", "5", "--path", str(stores))
    assert json.loads(result.stdout) == {"key": 5, "value": {"name": "account 5"}}
