"""Many tables in each process, with the usual limit of open files, which cannot be raised."""

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from sleeper.local.instance import create_local_instance

pytestmark = pytest.mark.slow

_SLEEPER = str(Path(sys.executable).with_name("sleeper"))
# A process failed at its 168th table if it wrote, and at the 340th if it read.
_TABLES = 500
_OPEN_FILES_MAX = 1_024
_LOAD = """
import sys
import pyarrow as pa
import sleeper
rows = pa.table({"k": [1, 2, 3]})
with sleeper.open_instance(sys.argv[1]) as instance:
    for number in range(int(sys.argv[2])):
        instance.create_table(f"t{number:04d}", like=rows, key="k").ingest(rows)
"""


def start(*command: str) -> subprocess.Popen[str]:
    def limit_open_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES_MAX, _OPEN_FILES_MAX))

    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit_open_files,
    )


def run(*command: str) -> str:
    process = start(*command)
    output, errors = process.communicate()
    assert process.returncode == 0, errors[-2_000:]
    return output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An instance with 500 tables of three rows, which one process wrote."""
    folder = tmp_path_factory.mktemp("many") / "instance"
    create_local_instance(folder, "many", {})
    run(sys.executable, "-c", _LOAD, str(folder), str(_TABLES))
    return folder


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Yields the URL of a server, which must end by itself within ten seconds of SIGTERM."""
    server = start(_SLEEPER, "--instance", str(folder), "serve", "--port", "0", "--read-only")
    try:
        assert server.stderr is not None
        yield server.stderr.readline().split()[-1]
        server.send_signal(signal.SIGTERM)
        _, errors = server.communicate(timeout=10)
        assert (server.returncode, errors) == (0, "stopped\n")
    finally:
        server.kill()


def test_background_work_looks_at_all_tables(folder: Path) -> None:
    output = run(
        *(_SLEEPER, "--instance", str(folder), "run", "--until-idle"),
        *("--workers", "1", "--output", "json"),
    )
    (status,) = map(json.loads, output.splitlines())
    assert (status["problems"], status["failures"]) == ([], 0)


def test_reports_have_all_tables(folder: Path) -> None:
    output = run(_SLEEPER, "--instance", str(folder), "report", "state", "-o", "json")
    rows = [json.loads(line)["rows"] for line in output.splitlines()]
    assert rows == [3] * _TABLES


def test_a_server_reads_and_reports_many_tables_and_stops(folder: Path) -> None:
    with served(folder) as url, httpx.Client(base_url=url, timeout=60) as client:

        def count_files(number: int) -> int:
            answer = client.get(f"/tables/t{number:04d}/files")
            assert answer.status_code == 200, answer.text
            return int(answer.json()["total"])

        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(count_files, range(_TABLES))) == [1] * _TABLES
        names = []
        for offset in (0, _TABLES - 100):
            page = client.get(f"/status?report=all&offset={offset}").json()
            assert page["tables"] == _TABLES
            names += [row["name"] for row in page["reports"][0]["rows"]]
        assert names == [f"t{n:04d}" for n in (*range(100), *range(_TABLES - 100, _TABLES))]
