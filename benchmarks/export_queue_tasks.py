"""The tasks of the benchmark of export queues, each for a process of its own."""

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import pyarrow as pa

import sleeper
from benchmarks.measuring import Watch
from benchmarks.result import check
from benchmarks.rows import random_words
from sleeper.schema.model import Field, PrimitiveType, Schema

_SCHEMA = Schema(
    (Field("key", PrimitiveType.STRING),),
    (),
    (Field("count", PrimitiveType.LONG), Field("text", PrimitiveType.STRING)),
)
PASSWORD_VARIABLE = "BENCHMARK_DATABASE_PASSWORD"
_TABLE = "rows"
_QUEUE = "exports"
_VALUES = ["count", "text"]
_COMMITS_BEFORE = 20
_READY_SECONDS = 60.0
_PAUSE_SECONDS = 0.05


def drain(
    watch: Watch, home: str, exports: int, buckets: int, exporter: str = "null:"
) -> dict[str, float]:
    """Takes up and drains exports of one ingest, all of which the exporter gets.

    Returns the seconds of taking up; those that are watched are of the drain.
    """
    with _new_instance(home) as instance:
        password = None if exporter == "null:" else f"env:{PASSWORD_VARIABLE}"
        queue = instance.create_export_queue(
            _QUEUE,
            _TABLE,
            "ingest",
            "key",
            _VALUES,
            exporter,
            password,
            buckets=buckets,
        )
        instance.table(_TABLE).ingest(pa.table(_random_rows(exports)))
        queue.pause()
        start = time.perf_counter()
        queue.drain()
        seconds = time.perf_counter() - start
        status = queue.status()
        check(status.pending == exports, f"{status.pending} of {exports} exports were taken up")
        queue.resume()
        with watch:
            report = queue.drain()
        check(report.exports == exports, f"{report.exports} of {exports} exports: {report}")
        check(queue.status().pending == 0, "exports wait after the drain")
    shutil.rmtree(home)
    return {"take_up_seconds": seconds}


def commit(watch: Watch, home: str, commits: int) -> dict[str, Any]:
    """Commits transactions of a row with no export, one and a hundred by turns.

    Returns the milliseconds of each number of exports: the median and the 99th percentile.
    """
    seconds: dict[int, list[float]] = {0: [], 1: [], 100: []}
    with _new_instance(home) as instance:
        queue = instance.create_export_queue(_QUEUE, _TABLE, "transaction", "key", _VALUES)
        table = instance.table(_TABLE)
        with watch:
            for turn in range(_COMMITS_BEFORE + commits):
                for count, measured in seconds.items():
                    start = time.perf_counter()
                    with table.transaction() as transaction:
                        transaction.ingest(pa.table(_random_rows(1, turn)))
                        for number in range(count):
                            transaction.export(_QUEUE, f"key{number}", (turn, "text"))
                    if turn >= _COMMITS_BEFORE:
                        measured.append(time.perf_counter() - start)
        queue.drain()
        check(queue.status().lag == 0, "exports are not taken up")
    shutil.rmtree(home)
    return {
        str(count): {"p50_ms": 1000 * median(each), "p99_ms": 1000 * quantiles(each, n=100)[98]}
        for count, each in seconds.items()
    }


def follow(watch: Watch, home: str, commits: int) -> dict[str, float]:
    """Commits transactions with an export each, beside `sleeper run`, which sends it to a webhook.

    Returns percentiles of the milliseconds from the beginning of a commit to the arrival of its
    export. Each commit follows the arrival of the one before.
    """
    arrivals = _Arrivals()
    with _webhook(arrivals) as url, _new_instance(home) as instance:
        instance.create_export_queue(
            _QUEUE, _TABLE, "transaction", "key", _VALUES, f"webhook:{url}"
        )
        table = instance.table(_TABLE)
        seconds = []
        with _running(home), watch:
            for turn in range(_COMMITS_BEFORE + commits):
                # Not at the same point of the worker's polls each time.
                time.sleep(_PAUSE_SECONDS * np.random.default_rng(turn).random())
                start = time.perf_counter()
                with table.transaction() as transaction:
                    transaction.export(_QUEUE, "key", (turn, "text"))
                delay = arrivals.wait(turn) - start
                if turn >= _COMMITS_BEFORE:
                    seconds.append(delay)
    shutil.rmtree(home)
    return {"p50_ms": 1000 * median(seconds), "p99_ms": 1000 * quantiles(seconds, n=100)[98]}


class _Arrivals:
    """The times at which exports arrived, by their counts."""

    def __init__(self) -> None:
        self._times: dict[int, float] = {}
        self._changed = threading.Condition()

    def add(self, counts: list[int]) -> None:
        now = time.perf_counter()
        with self._changed:
            for count in counts:
                self._times.setdefault(count, now)
            self._changed.notify_all()

    def wait(self, count: int) -> float:
        """Returns the time of the export's arrival."""
        with self._changed:
            has_arrived = self._changed.wait_for(lambda: count in self._times, _READY_SECONDS)
        check(has_arrived, f"export {count} did not arrive")
        return self._times[count]


@contextmanager
def _new_instance(home: str) -> Iterator[sleeper.Instance]:
    shutil.rmtree(home, ignore_errors=True)
    with sleeper.create_instance(home) as instance:
        instance.create_table(_TABLE, _SCHEMA)
        yield instance


def _random_rows(rows: int, seed: int = 1) -> dict[str, pa.Array]:
    random = np.random.default_rng(seed)
    return {
        "key": random_words(random, rows),
        "count": pa.array(random.integers(0, 2**40, rows)),
        "text": random_words(random, rows),
    }


@contextmanager
def _running(home: str) -> Iterator[None]:
    """Runs `sleeper run` until the context ends."""
    program = str(Path(sys.executable).with_name("sleeper"))
    process = subprocess.Popen(
        [program, "--instance", home, "run"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
        check(process.poll() is None, "sleeper run has ended")
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _webhook(arrivals: _Arrivals) -> Iterator[str]:
    """A receiver that records the arrival of exports."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            arrivals.add([each["value"]["count"] for each in body["exports"]])
            self.send_response(204)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
