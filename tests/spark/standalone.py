"""A master of Spark's own cluster manager on the loopback address, and a worker."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.spark.imports import PATIENCE_SECONDS
from tests.spark.java import VARIABLE as JAVA_OPTIONS

_HOME = Path(pyspark.__file__).parent
_CLASS = "org.apache.spark.deploy"
# A command with a folder and another command, which sees an empty one there.
_HIDE = 'mount -t tmpfs tmpfs "$0" && exec "$@"'
_HIDING = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _HIDE)
_URL = re.compile(r"Starting Spark master at (spark://\S+)")


@contextmanager
def standalone_master(folder: Path) -> Iterator[str]:
    """Yields the URL of a master without workers."""
    log = folder / "master.log"
    with _running([], "master.Master", "--port", "0", log=log):
        yield wait_for_url(log)


@contextmanager
def standalone_worker(master: str, folder: Path, hidden: Path | None = None) -> Iterator[None]:
    """Runs a worker with two cores, whose executors have files in the folder only.

    They see nothing in the folder `hidden`, which takes mounts of their own.
    """
    size = ("--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work"))
    before = [] if hidden is None else [*_HIDING, str(hidden)]
    with _running(before, "worker.Worker", *size, master, log=folder / "worker.log"):
        yield


@contextmanager
def _running(before: list[str], name: str, *arguments: str, log: Path) -> Iterator[None]:
    # Java replaces the script. Its page takes any port that is free.
    command = [*before, str(_HOME / "bin" / "spark-class"), f"{_CLASS}.{name}"]
    command += ["--host", "127.0.0.1", "--webui-port", "0", *arguments]
    # Executors have the environment of their worker, and not the options of the driver.
    own = {"SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": os.environ[JAVA_OPTIONS]}
    environment = {**os.environ, "SPARK_HOME": str(_HOME), **own}
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def wait_for_url(log: Path) -> str:
    """Returns the URL that a master has logged."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (match := _URL.search(log.read_text())) is None:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    return match[1]
