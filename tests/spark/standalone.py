"""A master of Spark's own cluster manager on the loopback address."""

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
_CLASS = "org.apache.spark.deploy.master.Master"
_URL = re.compile(r"Starting Spark master at (spark://\S+)")


@contextmanager
def standalone_master(folder: Path) -> Iterator[str]:
    """Yields the URL of a master without workers."""
    # Java replaces the script. Its page takes any port that is free.
    command = [str(_HOME / "bin" / "spark-class"), _CLASS, "--host", "127.0.0.1"]
    command += ["--port", "0", "--webui-port", "0"]
    environment = {**os.environ, "SPARK_HOME": str(_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    log = folder / "master.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        yield wait_for_url(log)
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
