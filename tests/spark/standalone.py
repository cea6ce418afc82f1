"""Spark's own cluster manager on the loopback address: a master, and workers."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.spark.imports import PATIENCE_SECONDS

_HOME = Path(pyspark.__file__).parent
_CLASS = "org.apache.spark.deploy"
_URL = re.compile(r"Starting Spark master at (spark://\S+)")


@contextmanager
def standalone_master(folder: Path) -> Iterator[str]:
    """Yields the URL of a master without workers."""
    log = folder / "master.log"
    with _running("master.Master", "--host", "127.0.0.1", "--port", "0", log=log):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (match := _URL.search(log.read_text())) is None:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield match[1]


@contextmanager
def standalone_worker(master: str, folder: Path) -> Iterator[None]:
    """Runs a worker with two cores, whose executors have files in the folder only."""
    size = ("--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work"))
    log = folder / "worker.log"
    with _running("worker.Worker", "--host", "127.0.0.1", *size, master, log=log):
        yield


@contextmanager
def _running(name: str, *arguments: str, log: Path) -> Iterator[None]:
    # Java replaces the script. Its page takes any port that is free.
    command = [str(_HOME / "bin" / "spark-class"), f"{_CLASS}.{name}", "--webui-port", "0"]
    environment = {**os.environ, "SPARK_HOME": str(_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *arguments], env=environment, stdout=output, stderr=output
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait()
