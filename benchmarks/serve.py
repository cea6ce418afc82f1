"""`sleeper serve`: one key at a time by many callers, and results of millions of rows."""

import http.client
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from benchmarks.measuring import Task, Watch, run_by_turns
from benchmarks.result import Result, check, figure
from benchmarks.settings import Settings
from sleeper.api import create_instance

_ROWS = 5_000_000
_BATCH_ROWS = 500_000
_CALLERS = 100
_POINTS = 5_000
_ARROW = "application/vnd.apache.arrow.stream"
_SCHEMA = (
    '{"rowKeyFields": [{"name": "k", "type": "LongType"}],'
    ' "valueFields": [{"name": "v", "type": "StringType"}]}'
)
_HEADERS = {"Content-Type": "application/json"}


def measure(settings: Settings) -> Result:
    rows = settings.rows or _ROWS
    folder = settings.folder / "serve"
    shutil.rmtree(folder, ignore_errors=True)
    _make(folder, rows)
    arguments = {"folder": str(folder), "rows": rows}
    tasks = {name: Task(__name__, name, arguments) for name in ("points", "json_rows", "arrow")}
    runs = run_by_turns(tasks, settings.repeats)
    shutil.rmtree(folder)
    answers = {name: [run.answer for run in results] for name, results in runs.items()}
    figures = [
        figure(f"{_CALLERS} callers, a key each", [a["rate"] for a in answers["points"]], "/s"),
        figure("p50", [a["p50_ms"] for a in answers["points"]], "ms"),
        figure("p99", [a["p99_ms"] for a in answers["points"]], "ms"),
    ]
    for name, text in (("json_rows", "all rows as JSON lines"), ("arrow", "all rows as Arrow")):
        rates = [rows / run.seconds / 1e6 for run in runs[name]]
        peaks = [answer["peak_mib"] for answer in answers[name]]
        figures += [
            figure(text, rates, "M rows/s"),
            figure(f"the server's peak memory, {name}", peaks, "MiB"),
        ]
    work = (
        f"{rows:,} rows of a long and a text in a folder's instance, over loopback from a"
        f" server with its default limits. {_CALLERS} callers with one connection each look up"
        f" {_POINTS:,} keys in total; one caller reads everything."
    )
    return Result("serve", work, tuple(figures))


def points(_: Watch, folder: str, rows: int) -> dict[str, float]:
    """Keys at random; each answer is checked."""
    with _serve(folder) as (url, _process):

        def ask(caller: int) -> list[float]:
            keys = random.Random(caller)
            connection = http.client.HTTPConnection(url)
            took = []
            for _ in range(_POINTS // _CALLERS):
                key = keys.randrange(rows)
                start = time.perf_counter()
                connection.request("POST", "/tables/t/query", json.dumps({"keys": [key]}), _HEADERS)
                answer = connection.getresponse().read()
                took.append(time.perf_counter() - start)
                check(json.loads(answer) == {"k": key, "v": f"value {key}"}, f"key {key}")
            connection.close()
            return took

        with ThreadPoolExecutor(_CALLERS) as callers:
            list(callers.map(ask, range(4)))  # opens files, and reads what a warm process has read
            start = time.perf_counter()
            took = [item for result in callers.map(ask, range(_CALLERS)) for item in result]
            seconds = time.perf_counter() - start
    cuts = quantiles(took, n=100)
    return {"rate": len(took) / seconds, "p50_ms": cuts[49] * 1e3, "p99_ms": cuts[98] * 1e3}


def json_rows(watch: Watch, folder: str, rows: int) -> dict[str, float]:
    """Counts lines."""
    return _read_all(watch, folder, rows, "application/x-ndjson")


def arrow(watch: Watch, folder: str, rows: int) -> dict[str, float]:
    """Counts rows."""
    return _read_all(watch, folder, rows, _ARROW)


def _read_all(watch: Watch, folder: str, rows: int, accept: str) -> dict[str, float]:
    with _serve(folder) as (url, process):
        connection = http.client.HTTPConnection(url)
        with watch:
            connection.request("POST", "/tables/t/query", "{}", {**_HEADERS, "Accept": accept})
            answer = connection.getresponse()
            count = 0
            if accept == _ARROW:
                count = sum(batch.num_rows for batch in pa.ipc.open_stream(answer))
            else:
                while piece := answer.read(1 << 20):
                    count += piece.count(b"\n")
        check(count == rows, f"{count} rows of {rows}")
        return {"peak_mib": _peak_mib(process.pid)}


def _make(folder: Path, rows: int) -> None:
    with create_instance(folder) as instance:
        table = instance.create_table("t", _SCHEMA, split_points=[rows // 2])
        table.ingest(_batches(rows))


def _batches(rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, _BATCH_ROWS):
        keys = range(start, min(start + _BATCH_ROWS, rows))
        columns: list[Any] = [pa.array(keys, pa.int64()), pa.array([f"value {k}" for k in keys])]
        yield pa.RecordBatch.from_arrays(columns, ["k", "v"])


@contextmanager
def _serve(folder: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    program = "from sleeper.cli.main import main; main()"
    command = [sys.executable, "-c", program, "--instance", folder, "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            output = process.stderr.readline()
            check(output.startswith("listening on "), output)
            yield urlsplit(output.split()[-1]).netloc, process
        finally:
            process.terminate()


def _peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))
