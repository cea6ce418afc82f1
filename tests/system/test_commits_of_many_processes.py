"""Concurrent commits of processes to one local table, one of which is killed at random."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

from sleeper.local.state_store import open_state_store
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from tests.clock import FakeClock
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
