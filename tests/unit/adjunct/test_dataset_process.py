"""Versions that a process of its own builds while this one serves lookups."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.adjunct import AdjunctStore
from sleeper.adjunct.open_store import UpdateSettings
from sleeper.errors import DataError, SleeperError, UnavailableError

SCHEMA = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [{"name": "name", "type": "StringType"}],
}


times = [1_700_000_000]


def write(path: Path, names: dict[int, str]) -> None:
    new = path.with_suffix(".new")
    pq.write_table(pa.table({"id": list(names), "name": list(names.values())}), new)
    # A file that was just changed may not be complete.
    times.append(times[-1] + 1)
    os.utime(new, (times[-1], times[-1]))
    new.replace(path)


def content(store: AdjunctStore) -> dict[int, str]:
    return {key: value["name"] for key, value in store.all()}


@contextmanager
def open_store(folder: Path, source: str, **named: Any) -> Iterator[AdjunctStore]:
    with AdjunctStore.open("names", source, folder, refresh_seconds=None, **named) as store:
        yield store


class Started:
    """Records the processes that are started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands: list[str] = []
        real = subprocess.Popen

        def start(command: Any, *arguments: Any, **named: Any) -> Any:
            self.commands.append(command[-1])
            return real(command, *arguments, **named)

        monkeypatch.setattr(subprocess, "Popen", start)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    return Started(monkeypatch)


def test_a_version_is_built_in_another_process_while_one_serves(
    tmp_path: Path, started: Started
) -> None:
    file = tmp_path / "names.parquet"
    write(file, {2: "b", 1: "a"})
    with open_store(tmp_path / "stores", f"files:{file}") as store:
        assert started.commands == []
        write(file, {3: "d", 1: "c"})
        assert store.refresh() == 2
        assert started.commands == ["sleeper.adjunct.worker_build"]
        assert content(store) == {1: "c", 3: "d"}
        version = store.status().version
        assert store.refresh() == 0
        write(file, {})
        store.refresh()
        assert content(store) == {}
        assert store.status().version != version
    assert len(list((tmp_path / "stores" / "names").glob("v-*"))) == 1
    with open_store(tmp_path / "stores", f"files:{file}") as store:
        assert content(store) == {}


def test_the_process_opens_the_instance_of_a_table(
    instance: sleeper.Instance, tmp_path: Path, started: Started
) -> None:
    table = instance.create_table("names", SCHEMA, {"sleeper.table.type": "snapshot"})
    table.ingest(pa.table({"id": [1], "name": ["a"]}))
    with open_store(tmp_path / "s", "table:names", instance=instance, partition="0/1") as store:
        table.ingest(pa.table({"id": [2], "name": ["b"]}))
        store.refresh()
        assert content(store) == {2: "b"}
        assert store.status().partition == "0/1"
    assert started.commands == ["sleeper.adjunct.worker_build"]


def test_the_error_of_an_input_is_that_of_the_process(tmp_path: Path, started: Started) -> None:
    file = tmp_path / "names.parquet"
    write(file, {1: "a"})
    with open_store(tmp_path / "stores", f"files:{file}") as store:
        content_of_file = file.read_bytes()
        file.write_bytes(content_of_file[:4] + b"\0" * 20 + content_of_file[24:])
        os.utime(file, (1_600_000_000, 1_600_000_000))
        with pytest.raises(SleeperError) as caught:
            store.refresh()
        assert not isinstance(caught.value, UnavailableError), caught.value
        assert content(store) == {1: "a"}
        assert [each.name for each in (tmp_path / "stores" / "names").glob("v-*")] == ["v-1"]


def test_a_process_that_dies_leaves_the_version_that_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "names.parquet"
    write(file, {1: "a"})
    with open_store(tmp_path / "stores", f"files:{file}") as store:
        write(file, {1: "b"})
        with monkeypatch.context() as patch:
            real = subprocess.Popen

            def start(command: Any, *arguments: Any, **named: Any) -> Any:
                # It says that it has begun, and then reads no request.
                return real([sys.executable, "-c", "print({})"], *arguments, **named)

            patch.setattr(subprocess, "Popen", start)
            with pytest.raises((UnavailableError, DataError)):
                store.refresh()
        assert content(store) == {1: "a"}
        store.refresh()
        assert content(store) == {1: "b"}
        children = [each.cmdline() for each in psutil.Process().children()]
        assert not any("print({})" in each for each in children)


def test_a_version_is_built_here_if_no_process_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "names.parquet"
    for command in (["/nonexistent"], [sys.executable, "-c", "raise SystemExit(3)"]):
        monkeypatch.setattr("sleeper.adjunct.adjunct_store._BUILD", command)
        write(file, {1: "a"})
        with open_store(tmp_path / command[-1][-6:-1], f"files:{file}") as store:
            write(file, {1: "b"})
            store.refresh()
            assert content(store) == {1: "b"}


def test_a_dataset_that_stays_the_newest_keeps_the_store_valid(
    tmp_path: Path, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "names.parquet"
    write(file, {1: "a"})
    folder = tmp_path / "stores"
    hour_ms = 3_600_000
    now_ms = 1_800_000_000_000
    settings = partial(UpdateSettings, clock=lambda: now_ms)
    monkeypatch.setattr("sleeper.adjunct.adjunct_store.UpdateSettings", settings)
    with open_store(folder, f"files:{file}") as store:
        for _ in range(30):
            now_ms += hour_ms
            store.refresh()
    now_ms += hour_ms
    loaded = (folder / "names" / "v-1").stat().st_ino
    with open_store(folder, f"files:{file}") as store:
        assert content(store) == {1: "a"}
    assert (folder / "names" / "v-1").stat().st_ino == loaded
    # A day without a look at the input makes it invalid.
    now_ms += 25 * hour_ms
    with open_store(folder, f"files:{file}"):
        pass
    assert not (folder / "names" / "v-1").exists()


_PARENT = """
import signal, subprocess, sys
command = [sys.executable, "-m", "sleeper.adjunct.worker_build"]
child = subprocess.Popen(command, stdin=0, stdout=subprocess.PIPE, start_new_session=True)
assert child.stdout.readline()
print(child.pid, flush=True)
signal.pause()
"""


@pytest.mark.slow
def test_the_process_ends_silently_with_the_one_that_waits_for_it(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    with errors.open("wb") as stderr:
        # This process keeps the other end of its input open, as a forked one would.
        parent = subprocess.Popen(
            [sys.executable, "-c", _PARENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    with parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        child.wait(timeout=20)
    assert errors.read_text() == ""
