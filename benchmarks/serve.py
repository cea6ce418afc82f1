"""`sleeper serve`: one key at a time by many callers, and results of millions of rows."""

import asyncio
import http.client
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from websockets.asyncio.client import connect

from benchmarks import wrk
from benchmarks.measuring import Task, Watch, run_by_turns
from benchmarks.result import Aim, Result, check, figure
from benchmarks.settings import Settings
from sleeper.api import create_instance
from sleeper.api import open_instance as open_sleeper
from sleeper.compaction.plan import compact_table
from sleeper.opening import open_instance

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
    names: tuple[str, ...] = ("points", "live_points", "json_rows", "arrow")
    if not wrk.is_installed():
        names = names[1:]
    tasks = {name: Task(__name__, name, arguments) for name in names}
    runs = run_by_turns(tasks, settings.repeats)
    shutil.rmtree(folder)
    answers = {name: [run.answer for run in results] for name, results in runs.items()}
    figures = []
    for name, way, rate_aim, p99_aim in (
        ("points", "HTTP", Aim(1_500), Aim(150, is_most=True)),
        ("live_points", "WebSocket", None, None),
    ):
        taken = answers.get(name, [])
        if taken:
            what = f"{_CALLERS} callers over {way}, a key each"
            figures += [
                figure(what, [a["rate"] for a in taken], "/s", rate_aim),
                figure(f"the same, p50, {way}", [a["p50_ms"] for a in taken], "ms"),
                figure(f"the same, p99, {way}", [a["p99_ms"] for a in taken], "ms", p99_aim),
            ]
    for name, text in (("json_rows", "all rows as JSON lines"), ("arrow", "all rows as Arrow")):
        rates = [rows / run.seconds / 1e6 for run in runs[name]]
        peaks = [answer["peak_mib"] for answer in answers[name]]
        figures += [
            figure(text, rates, "M rows/s"),
            figure(f"the server's peak memory, {name}", peaks, "MiB"),
        ]
    work = (
        f"{rows:,} rows of a long and a text in a folder's instance, compacted to a file per leaf,"
        f" over loopback from a server with its default limits. {_CALLERS} callers with one"
        " connection each look up one key after another: over HTTP by wrk for ten seconds, each"
        f" response checked; over WebSockets {_POINTS:,} keys by the package websockets in one"
        " process of Python, which takes about as much time as the server. One caller reads"
        " everything."
    )
    missing = () if wrk.is_installed() else ("wrk is not installed, so HTTP was not measured.",)
    return Result("serve", work, tuple(figures), notes=missing)


def points(_: Watch, folder: str, rows: int) -> dict[str, float]:
    """Keys at random over HTTP; each answer is checked."""
    with serve_folder(folder) as (url, _process):
        connection = http.client.HTTPConnection(url)
        for key in range(0, rows, max(rows // 100, 1)):
            connection.request("POST", "/tables/t/query", json.dumps({"keys": [key]}), _HEADERS)
            answer = json.loads(connection.getresponse().read())
            check(answer == {"k": key, "v": f"value {key}"}, f"key {key}")
        load = wrk.look_up(f"http://{url}/tables/t/query", rows, _CALLERS, Path(folder))
    check(load.wrong == 0, f"{load.wrong} of {load.requests} responses are wrong or missing")
    return {"rate": load.rate, "p50_ms": load.p50_ms, "p99_ms": load.p99_ms}


def live_points(_: Watch, folder: str, rows: int) -> dict[str, float]:
    """Keys at random over WebSockets; each answer is checked."""
    with serve_folder(folder) as (url, _process):
        asyncio.run(_ask_live(url, rows, _POINTS // 10))  # reads what a warm process has read
        start = time.perf_counter()
        taken = asyncio.run(_ask_live(url, rows, _POINTS))
        seconds = time.perf_counter() - start
    cuts = quantiles(taken, n=100)
    return {"rate": len(taken) / seconds, "p50_ms": cuts[49] * 1e3, "p99_ms": cuts[98] * 1e3}


async def _ask_live(url: str, rows: int, count: int) -> list[float]:
    """Returns the seconds that each key took."""

    async def ask(caller: int) -> list[float]:
        keys, taken = random.Random(caller), []
        async with connect(f"ws://{url}/live", compression=None) as live:
            for _ in range(count // _CALLERS):
                key = keys.randrange(rows)
                region = {"k": {"min": key, "max": key, "maxInclusive": True}}
                query = {"type": "Query", "tableName": "t", "regions": [region]}
                start = time.perf_counter()
                await live.send(json.dumps(query))
                frames = [json.loads(await live.recv())]
                while frames[-1]["message"] == "rows":
                    frames.append(json.loads(await live.recv()))
                taken.append(time.perf_counter() - start)
                found = [row for frame in frames[:-1] for row in frame["rows"]]
                check(found == [{"k": key, "v": f"value {key}"}], f"key {key}: {frames}")
        return taken

    results = await asyncio.gather(*(ask(caller) for caller in range(_CALLERS)))
    return [seconds for result in results for seconds in result]


def json_rows(watch: Watch, folder: str, rows: int) -> dict[str, float]:
    """Counts lines."""
    return _read_all(watch, folder, rows, "application/x-ndjson")


def arrow(watch: Watch, folder: str, rows: int) -> dict[str, float]:
    """Counts rows."""
    return _read_all(watch, folder, rows, _ARROW)


def _read_all(watch: Watch, folder: str, rows: int, accept: str) -> dict[str, float]:
    with serve_folder(folder) as (url, process):
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
        for start in (0, 1):
            table.ingest(_batches(rows, start))
    opened = open_instance(str(folder))
    compact_table(opened, "t", full=True)
    opened.close()
    with open_sleeper(folder) as instance:
        instance.run_until_idle()


def _batches(rows: int, start: int) -> Iterator[pa.RecordBatch]:
    """Yields every second row from the start on."""
    for first in range(start, rows, _BATCH_ROWS):
        keys = range(first, min(first + _BATCH_ROWS, rows), 2)
        columns: list[Any] = [pa.array(keys, pa.int64()), pa.array([f"value {k}" for k in keys])]
        yield pa.RecordBatch.from_arrays(columns, ["k", "v"])


@contextmanager
def serve_folder(folder: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Yields the address of a server of the instance in a folder, and its process."""
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
