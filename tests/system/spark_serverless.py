"""EMR Serverless, as far as bulk imports ask for it: job runs, each a spark-submit of this machine.

    with spark_serverless(instance, environment, folder) as platform:
        platform.url

It speaks the service's own HTTP. A run is what was asked for: the settings, the driver's file with
its arguments, and the role. Only what the image has elsewhere is replaced, and the cluster is the
processors of this machine.
"""

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sleeper.jobs.spark_platform import MAIN_FILE, PYTHON
from tests.spark.java import VARIABLE
from tests.system.deployed import Client
from tests.system.roles import credentials_of

ROOT = Path(__file__).parents[2]
_DRIVER_VARIABLE = "spark.emr-serverless.driverEnv."
_END_SECONDS = 30
# What a container of the image has that a process of this machine does not get by itself.
_HERE = {"PYTHONPATH": str(ROOT / "core"), "SPARK_LOCAL_IP": "127.0.0.1"}


@dataclass
class SparkServerless:
    """The job runs by id. A run's output is in the folder, by its id."""

    client: Client
    environment: Mapping[str, str]
    folder: Path
    url: str = ""
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    _processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, request: dict[str, Any]) -> str:
        """Starts a run, once for each client token. Its id."""
        token: str = request["clientToken"]
        with self._lock:
            if token not in self.asked:
                self.asked[token] = request
                self._processes[token] = self._submit(token, request)
        return token

    def state(self, run_id: str) -> str:
        """Returns the service's state of the run. KeyError if it does not exist."""
        status = self._processes[run_id].poll()
        return "RUNNING" if status is None else "FAILED" if status else "SUCCESS"

    def end(self) -> None:
        """Stops the runs that are not finished."""
        for process in self._processes.values():
            process.terminate()
            process.wait(_END_SECONDS)

    def _submit(self, run_id: str, request: Mapping[str, Any]) -> "subprocess.Popen[bytes]":
        driver = request["jobDriver"]["sparkSubmit"]
        assert driver["entryPoint"] == MAIN_FILE
        python = shlex.quote(sys.executable)
        options = shlex.split(driver["sparkSubmitParameters"].replace(PYTHON, python))
        disk = self.folder / run_id
        disk.mkdir(parents=True)
        command = [
            Path(sys.executable).with_name("spark-submit"),
            *("--master", f"local[{os.cpu_count()}]"),
            *options,
            ROOT / "containers" / "bulk_import" / "main.py",
            *driver["entryPointArguments"],
        ]
        settings = dict(option.split("=", 1) for option in options if option != "--conf")
        environment = {
            name.removeprefix(_DRIVER_VARIABLE): value
            for name, value in settings.items()
            if name.startswith(_DRIVER_VARIABLE)
        }
        remaining = {
            name: os.environ[name] for name in ("PATH", "JAVA_HOME", VARIABLE) if name in os.environ
        }
        places = {"TMPDIR": str(disk), "SPARK_LOCAL_DIRS": str(disk)}
        role = credentials_of(self.client, request["executionRoleArn"])
        with (self.folder / f"{run_id}.log").open("wb") as log:
            return subprocess.Popen(
                command,
                cwd=disk,
                env={**remaining, **_HERE, **self.environment, **role, **environment, **places},
                stdout=log,
                stderr=subprocess.STDOUT,
            )


@contextmanager
def spark_serverless(
    client: Client, environment: Mapping[str, str], folder: Path
) -> Iterator[SparkServerless]:
    """Serves at a loopback port until the context ends, which stops all runs."""
    folder.mkdir()
    platform = SparkServerless(client, environment, folder)
    handler = type("Handler", (_Handler,), {"platform": platform})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        platform.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield platform
        finally:
            server.shutdown()
            thread.join()
            platform.end()


class _Handler(BaseHTTPRequestHandler):
    """`POST /applications/ID/jobruns` and `GET /applications/ID/jobruns/RUN`."""

    platform: SparkServerless

    def do_POST(self) -> None:
        """StartJobRun."""
        _, _, application, _ = self.path.split("/")
        length = int(self.headers["Content-Length"])
        run_id = self.platform.start(json.loads(self.rfile.read(length)))
        self._answer(200, {"applicationId": application, "jobRunId": run_id, "arn": run_id})

    def do_GET(self) -> None:
        """GetJobRun."""
        _, _, application, _, run_id = self.path.split("/")
        requested = self.platform.asked.get(run_id)
        if requested is None:
            self._answer(404, {"message": f"job run {run_id} does not exist"})
            return
        run = {
            "applicationId": application,
            "jobRunId": run_id,
            "arn": run_id,
            "createdBy": "test",
            "createdAt": time.time(),
            "updatedAt": time.time(),
            "executionRole": requested["executionRoleArn"],
            "state": self.platform.state(run_id),
            "stateDetails": "",
            "releaseLabel": "emr",
            "jobDriver": requested["jobDriver"],
        }
        self._answer(200, {"jobRun": run})

    def log_message(self, *_: object) -> None:
        """Suppresses the request log."""

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        if status == 404:
            self.send_header("x-amzn-ErrorType", "ResourceNotFoundException")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)
