"""Concurrent commits of processes to one local table, one of which is killed at random."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from sleeper.errors import UnavailableError
from sleeper.local.state_store import open_state_store
from sleeper.statestore import commit_queue, group_commit
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from tests.clock import FakeClock
from tests.system.commit_leader import SENDERS, STAGES
from tests.tables.state_table import ROOT, StateTable, data_file

PROCESSES, COMMITS = 8, 40


def commit_many(path: Path, worker: int, output: Path, count: int) -> None:
    """Commits repeatedly and writes the number of each transaction."""
    store = open_state_store(path)
    with output.open("a", buffering=1) as out:
        for i in range(count):
            name = f"{worker}-{i}"
            new = NewFile(data_file(name), ((ROOT, 10),))
            (outcome,) = store.commit(AddFiles(name, time.time_ns() // 1_000_000, (new,)))
            out.write(f"{name} {outcome.number}\n")


def new_table(folder: Path) -> StateTable:
    """A table made now: its log refuses commits of processes whose clocks are far ahead."""
    clock = FakeClock(time.time_ns() // 1_000_000)
    return StateTable(folder, "embedded", clock=clock).initialise()


def start(folder: Path, worker: int, count: int):
    context = multiprocessing.get_context("spawn")
    output = folder / f"said-{worker}"
    process = context.Process(target=commit_many, args=(folder / "state.db", worker, output, count))
    process.start()
    return process


def read_output(folder: Path) -> dict[str, int]:
    lines = [line for p in folder.glob("said-*") for line in p.read_text().splitlines()]
    return {name: int(number) for name, number in (line.split() for line in lines)}


def test_eight_processes_lose_no_number_and_assign_none_twice(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    processes = [start(tmp_path, w, COMMITS) for w in range(PROCESSES)]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    output = read_output(tmp_path)
    assert sorted(output.values()) == list(range(2, 2 + PROCESSES * COMMITS))
    with table.store.reading() as state:
        assert {f.path: f.smallest_number for f in state.files.all()} == output


def test_a_killed_process_loses_no_acknowledged_commit_and_blocks_no_other(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    victim, survivor = start(tmp_path, 0, 100_000), start(tmp_path, 1, 100)
    deadline = time.monotonic() + 60
    output = tmp_path / "said-0"
    while not (output.exists() and output.stat().st_size > 200):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    victim.join()
    survivor.join(60)
    assert survivor.exitcode == 0
    with table.store.reading() as state:
        names = {f.path: f.smallest_number for f in state.files.all()}
        last = state.number
    # the victim may have died between the commit and its saying so, but only there
    assert read_output(tmp_path).items() <= names.items()
    assert len(names) - len(read_output(tmp_path)) <= 1
    assert sorted(names.values()) == list(range(2, last + 1))


@contextmanager
def leader(folder: Path, stage: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has the lock and waits for the senders."""
    command = [sys.executable, "-m", "tests.system.commit_leader", str(folder / "state.db"), stage]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "leading\n"
            yield process
        finally:
            process.kill()


def send(folder: Path, count: int = 3) -> dict[str, int]:
    """Commits from several senders at once. Returns the numbers of the transactions."""
    workers = range(SENDERS)
    with ThreadPoolExecutor(SENDERS) as threads:
        outputs = [folder / f"said-{worker}" for worker in workers]
        args = [folder / "state.db"] * SENDERS, workers, outputs, [count] * SENDERS
        list(threads.map(commit_many, *args))
    return read_output(folder)


def check_state(table: StateTable, output: dict[str, int]) -> None:
    """Checks that the commits are there once each, and none but the leader's beside them."""
    with table.store.reading() as state:
        names = {f.path: f.smallest_number for f in state.files.all()}
        last = state.number
    assert output.items() <= names.items()
    assert names.keys() - output.keys() <= {"leader"}
    assert sorted(names.values()) == list(range(2, last + 1))


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage not in {"stopped", "full"}])
def test_a_leader_killed_at_any_stage_loses_no_commit_and_repeats_none(
    tmp_path: Path, stage: str
) -> None:
    table = new_table(tmp_path)
    with leader(tmp_path, stage) as process:
        output = send(tmp_path)
        assert process.wait(60) == -signal.SIGKILL
    assert len(output) == 3 * SENDERS
    check_state(table, output)


def test_a_leader_without_disk_space_fails_alone(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with leader(tmp_path, "full") as process:
        output = send(tmp_path)
        assert process.stdout is not None
        assert process.stdout.read() == "unavailable\n"
    assert len(output) == 3 * SENDERS
    check_state(table, output)
    assert output.keys() == {file.path for file in table.files()}


def test_a_stopped_leader_makes_commits_unavailable_until_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path)
    with leader(tmp_path, "stopped") as process:
        with monkeypatch.context() as patient:
            for module in (commit_queue, group_commit):
                patient.setattr(module, "LOCK_SECONDS_MAX", 0.3)
            with pytest.raises(UnavailableError, match="is the process stopped"):
                send(tmp_path, 1)
        os.kill(process.pid, signal.SIGKILL)
        output = send(tmp_path)
    assert len(output) == 3 * SENDERS
    check_state(table, output)
