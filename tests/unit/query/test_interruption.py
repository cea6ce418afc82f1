"""Endless statements stop at their time limit, and at Ctrl-C."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from sleeper.api import create_instance
from sleeper.errors import InvalidRequestError
from sleeper.query.request import Query
from sleeper.query.run import run_query
from sleeper.query.sql.explain import explain_sql
from sleeper.query.sql.statement import run_sql
from sleeper.schema.model import Field, PrimitiveType, Schema
from tests.tables.data_table import DataTable, make_engine

pytestmark = pytest.mark.usefixtures("holds_of_reads")

SCHEMA = Schema((Field("k", PrimitiveType.LONG),), (), (Field("v", PrimitiveType.LONG),))
COMMAND = (sys.executable, "-c", "from sleeper.cli.main import main; main()")
ENDLESS = [
    "SELECT count(*) FROM generate_series(1, 1000000000000)",
    "SELECT * FROM generate_series(1, 1000000000000)",
    "SELECT sum(a.value * b.value % totals.rows) FROM (SELECT count(*) AS rows FROM t) totals "
    "CROSS JOIN generate_series(1, 100000) a CROSS JOIN generate_series(1, 100000000) b",
]


@pytest.fixture
def table(tmp_path: Path) -> DataTable:
    table = DataTable(tmp_path, SCHEMA)
    table.add_rows([(i, i) for i in range(10)])
    return table


def openers(table: DataTable) -> dict:
    return {"t": lambda: table.query_table}


@pytest.mark.parametrize("statement", ENDLESS)
def test_statement_stops_at_its_time_limit(table: DataTable, statement: str) -> None:
    engine = make_engine(table.folder, seconds_max=1)
    with pytest.raises(
        InvalidRequestError, match=r"1 s, the maximum of sleeper\.query\.time\.max\.seconds"
    ):
        for _ in run_sql(statement, openers(table), engine):
            pass
    assert table.holds() == []


def test_explanation_stops_at_its_time_limit(table: DataTable) -> None:
    engine = make_engine(table.folder, seconds_max=1)
    with pytest.raises(InvalidRequestError, match=r"time\.max\.seconds"):
        explain_sql(ENDLESS[0], openers(table), engine)
    assert table.holds() == []


def test_statement_within_its_time_limit_returns_its_rows(table: DataTable) -> None:
    engine = make_engine(table.folder, seconds_max=60)
    assert run_sql("SELECT * FROM t", openers(table), engine).read_all().num_rows == 10


def test_query_stops_between_batches_at_its_time_limit(table: DataTable) -> None:
    table.add_rows([(i, i) for i in range(30_000)])
    engine = make_engine(table.folder, seconds_max=1)
    result = run_query(Query(), table.query_table, engine)
    next(result)
    time.sleep(1.1)
    with pytest.raises(InvalidRequestError, match=r"time\.max\.seconds"):
        list(result)
    assert run_query(Query(), table.query_table, engine).read_all().num_rows == 30_010


def test_ctrl_c_ends_a_statement(tmp_path: Path) -> None:
    create_instance(tmp_path / "here").close()
    command = (*COMMAND, "--instance", str(tmp_path / "here"), "sql", ENDLESS[0])
    running = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: list((tmp_path / "here" / "spill").glob("*@*")))
        # The engine is in native code, where it looks at signals by itself.
        is_busy = psutil.Process(running.pid).cpu_times
        started = is_busy().user
        wait_until(lambda: is_busy().user > started + 0.3)
        running.send_signal(signal.SIGINT)
        _, output = running.communicate(timeout=60)
    finally:
        running.kill()
    assert (running.returncode, output) == (130, b"interrupted\n")


def wait_until(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)
