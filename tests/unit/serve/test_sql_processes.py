"""Statements in child processes: their limits, and recovery after a crash."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from sleeper.admin.tables import create_table
from sleeper.errors import InvalidRequestError
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.query.result import TimeLimit
from sleeper.serve.sql_processes import SqlProcesses

SCHEMA = """{"rowKeyFields":[{"name":"k","type":"LongType"}],
 "valueFields":[{"name":"s","type":"StringType"}]}"""
ENDLESS = "SELECT count(*) FROM generate_series(1, 1000000000000)"
ROWS = 50_000
_MIB = 1024**2


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    folder = tmp_path_factory.mktemp("served") / "instance"
    create_local_instance(folder, "test", {"sleeper.query.memory.bytes": "64M"})
    opened_instance = open_local_instance(folder)
    create_table(opened_instance, "t", SCHEMA)
    rows = {"k": list(range(ROWS)), "s": [f"row {k}" for k in range(ROWS)]}
    ingest_rows(opened_instance, "t", [pa.record_batch(rows)])
    yield opened_instance
    opened_instance.close()


@pytest.fixture(scope="module")
def processes(instance: Instance) -> Iterator[SqlProcesses]:
    sql_processes = SqlProcesses(instance.where, 400 * _MIB)
    yield sql_processes
    sql_processes.close()
    assert children() == []


def children() -> list[psutil.Process]:
    return [
        item for item in psutil.Process().children() if "sleeper.serve.sql_child" in item.cmdline()
    ]


def limit(seconds: int = 60) -> TimeLimit:
    return TimeLimit(seconds, time.monotonic(), stop_event=threading.Event())


def run(processes: SqlProcesses, statement: str, seconds: int = 60) -> pa.Table:
    rows = processes.open(statement, limit(seconds), "local")
    return pa.Table.from_batches(rows, rows.schema)


def holds(instance: Instance) -> int:
    """Returns how many versions are held. The processes keep their floors until they idle."""
    return sum(not hold.is_floor for hold in instance.table("t").state.holds.all())


def test_rows_are_returned_unchanged_and_processes_are_reused(
    instance: Instance, processes: SqlProcesses
) -> None:
    result = run(processes, "SELECT * FROM t ORDER BY k")
    assert result.column("s").to_pylist() == [f"row {k}" for k in range(ROWS)]
    (process,) = children()
    assert run(processes, "SELECT s FROM t WHERE k < 0").schema.names == ["s"]
    with pytest.raises(InvalidRequestError, match="no table 'nope'; tables are: t"):
        run(processes, "SELECT * FROM nope")
    with pytest.raises(InvalidRequestError, match="zero"):
        run(processes, "SELECT 1 / (k - 40000) FROM t")
    assert [item.pid for item in children()] == [process.pid]
    assert holds(instance) == 0


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT repeat('x', 40000000) AS v",
        "SELECT array_agg(repeat('x', 1000)) AS v FROM t WHERE k < 20000",
        "SELECT struct(repeat('x', 40000000)) AS v",
        "SELECT k, CASE WHEN k = 49000 THEN repeat('x', 40000000) END AS v FROM t",
    ],
)
def test_a_row_that_is_too_large_does_not_reach_the_server(
    processes: SqlProcesses, statement: str
) -> None:
    before_bytes = psutil.Process().memory_info().rss
    with pytest.raises(
        InvalidRequestError, match=r"a row .* bytes \(expected at most 16,777,216\)"
    ):
        run(processes, statement)
    assert psutil.Process().memory_info().rss - before_bytes < 50 * _MIB
    assert run(processes, "SELECT 1 AS one").to_pylist() == [{"one": 1}]


def test_large_rows_arrive_in_small_batches(processes: SqlProcesses) -> None:
    statement = "SELECT k, repeat(s, 10000) AS v FROM t WHERE k < 300"
    keys = []
    for batch in processes.open(statement, limit(), "local"):
        assert batch.nbytes <= 4 * _MIB
        keys += batch.column("k").to_pylist()
    assert sorted(keys) == list(range(300))
    (row,) = run(processes, "SELECT repeat('x', 16000000) AS v").to_pylist()
    assert len(row["v"]) == 16_000_000


def test_closing_a_statement_early_keeps_its_process(
    instance: Instance, processes: SqlProcesses
) -> None:
    run(processes, "SELECT 1")
    previous = [item.pid for item in children()]
    rows = processes.open("SELECT a.k, repeat('x', 100) FROM t a, t b", limit(), "local")
    assert next(iter(rows)).num_rows
    rows.close()
    assert [item.pid for item in children()] == previous
    assert run(processes, "SELECT 1 AS one").to_pylist() == [{"one": 1}]
    # The floor of the process ends a minute after its last read.
    assert all(hold.is_floor for hold in instance.table("t").state.holds.all())


def test_cancelled_statement_is_stopped(processes: SqlProcesses) -> None:
    cancelled = limit()
    assert cancelled.stop_event is not None
    threading.Timer(0.5, cancelled.stop_event.set).start()
    start = time.monotonic()
    with pytest.raises(InvalidRequestError, match="cancelled"):
        processes.open(ENDLESS, cancelled, "local")
    assert time.monotonic() - start < 60
    assert run(processes, "SELECT 1 AS one").to_pylist() == [{"one": 1}]


@pytest.mark.parametrize(
    "statement",
    [
        ENDLESS,
        "SELECT count(*) FROM t a, t b, t c",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r",
        # Evaluated during planning, where the engine does not check the time limit.
        "SELECT length(regexp_replace(repeat('a', 100000), 'a', repeat('b', 20), 'g')) FROM"
        " generate_series(1, 1000000000)",
    ],
)
def test_statement_ends_at_its_time_limit(processes: SqlProcesses, statement: str) -> None:
    start = time.monotonic()
    with pytest.raises(InvalidRequestError, match="more than 1 s"):
        run(processes, statement, seconds=1)
    assert time.monotonic() - start < 15


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT sum(length(repeat(s, 1000000))) FROM t",
        "SELECT sum(length(lpad(s, 1000000, 'x'))) FROM t",
        "SELECT sum(length(rpad(s, 1000000000, 'xyz'))) FROM t",
        "SELECT length(replace(repeat('a', 100000), 'a', repeat('b', 20000)))",
        "SELECT cardinality(generate_series(1, 1000000000))",
    ],
)
def test_statement_beyond_its_memory_limit_ends_alone(
    processes: SqlProcesses, statement: str
) -> None:
    with pytest.raises(InvalidRequestError, match="more memory"):
        run(processes, statement)
    assert run(processes, "SELECT 1 AS one").to_pylist() == [{"one": 1}]


def test_killed_process_is_reported_and_replaced(processes: SqlProcesses) -> None:
    rows = processes.open("SELECT value FROM generate_series(1, 1000000000)", limit(), "local")
    for item in children():
        item.kill()
    with pytest.raises(InvalidRequestError, match="ended its process"):
        for _ in rows:
            pass
    assert run(processes, "SELECT 1 AS one").to_pylist() == [{"one": 1}]


def test_processes_end_with_their_server(tmp_path: Path, instance: Instance) -> None:
    program = (
        "import os, sys, psutil\n"
        "from sleeper.query.result import TimeLimit\n"
        "from sleeper.serve.sql_processes import SqlProcesses\n"
        "made = SqlProcesses(sys.argv[1], 10**9)\n"
        "made.open('SELECT value FROM generate_series(1, 1000000000)', TimeLimit(), 'local')\n"
        "print(psutil.Process().children()[0].pid, flush=True)\n"
        "os._exit(1)"
    )
    results = subprocess.run(
        [sys.executable, "-c", program, instance.where], capture_output=True, text=True, check=False
    )
    pid = int(results.stdout)
    deadline = time.monotonic() + 60
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the process still runs"
        time.sleep(0.1)


def test_memory_is_limited_while_nobody_reads(processes: SqlProcesses) -> None:
    rows = processes.open(
        "SELECT 1 AS n UNION ALL"
        " SELECT cardinality(generate_series(1, 300000000 + k)) FROM t WHERE k = 1",
        limit(),
        "local",
    )
    assert rows._process is not None
    process = psutil.Process(rows._process._process.pid)
    deadline = time.monotonic() + 60
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, f"it has {process.memory_info().rss // _MIB} MiB"
        time.sleep(0.05)
    with pytest.raises(InvalidRequestError, match="more memory"):
        list(rows)
    assert run(processes, "SELECT 1 AS one").to_pylist() == [{"one": 1}]
