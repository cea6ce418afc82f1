"""A cluster of Spark on machines of its own, and driver programs on its first machine."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import psutil
import pyspark

from sleeper.retries import RETRY_VARIABLE
from tests.servers.aws_instance import AwsInstance
from tests.servers.relay import relay
from tests.spark.imports import PATIENCE_SECONDS
from tests.spark.java import VARIABLE as JAVA_OPTIONS
from tests.spark.processes import executors, kill_family, python_workers
from tests.spark.standalone import wait_for_url
from tests.spark_cluster import program
from tests.spark_cluster.installation import Installation
from tests.spark_cluster.machines import Machine, Network

CORES_PER_WORKER = 2
_INHERITED = ("PATH", "JAVA_HOME", "LANG", RETRY_VARIABLE)
_HOME = Path(pyspark.__file__).parent
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": str(CORES_PER_WORKER),
    "spark.sql.shuffle.partitions": "4",
    "spark.default.parallelism": "4",
    "spark.sql.session.timeZone": "UTC",
}


class Driver:
    """A driver program on the first machine, in a process group of its own."""

    def __init__(self, command: list[str], environment: Mapping[str, str], folder: Path) -> None:
        self._output = folder / "output"
        self._errors = folder / "errors"
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command, env=environment, stdout=output, stderr=errors, start_new_session=True
            )

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def kill(self) -> None:
        """Kills the process with its JVM."""
        kill_family(self.process.pid)
        self.process.wait()

    def end(self, status: int = 0) -> str:
        """Waits until it ends with that status; returns its error output."""
        self.process.wait(PATIENCE_SECONDS)
        errors = self._errors.read_text(errors="replace")
        assert self.process.returncode == status, errors
        return errors

    def steps(self) -> dict[str, dict[str, Any]]:
        """Returns what the steps of a program have reported, by their names."""
        lines = self._output.read_text().splitlines()
        reports = [json.loads(line) for line in lines if line.startswith("{")]
        return {report.pop("step"): report for report in reports}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A master on the first machine, and a worker on each other one.

    Machines have no credentials: a driver gives them to its executors.
    """

    network: Network
    master: str
    workers: tuple["subprocess.Popen[bytes]", ...]
    installation: Installation
    instance: AwsInstance
    environment: Mapping[str, str]
    folder: Path

    def settings(self, *, credentials: bool = True) -> dict[str, str]:
        """Returns the settings of a session whose executors reach the instance."""
        names = [name for name in self.environment if name.startswith(("AWS_", "SLEEPER_"))]
        if not credentials:
            names = [name for name in names if name not in CREDENTIALS]
        settings = {f"spark.executorEnv.{name}": self.environment[name] for name in names}
        return _SETTINGS | settings

    def start(self, *words: str, name: str, variables: Mapping[str, str] | None = None) -> Driver:
        """Starts a program with its files in a folder of that name."""
        folder = self.folder / name
        folder.mkdir()
        environment = {**self.environment, "SLEEPER_STATE_FOLDER": str(folder / "state")}
        environment |= variables or {}
        return Driver(self.driver_machine.command(*words), environment, folder)

    def start_program(
        self,
        *arguments: str,
        name: str,
        conf: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Driver:
        """Starts a program of `program.py`."""
        settings = program.Settings(
            self.master,
            self.settings() | dict(conf or {}),
            self.instance.where,
            self.instance.source_bucket,
            str(self.folder / name),
        )
        script = str(self.folder / "program.py")
        words = (self.installation.python, script, json.dumps(asdict(settings)), *arguments)
        return self.start(*words, name=name, variables=variables)

    def start_import(
        self,
        table: str,
        job_id: str,
        *,
        name: str,
        master: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Driver:
        """Starts a `sleeper bulk-import` of the rows of the source bucket."""
        words = [self.installation.command, "--instance", self.instance.where, "bulk-import", table]
        words += [f"s3://{self.instance.source_bucket}/rows/", "--job-id", job_id]
        words += ["--master", master or self.master]
        for setting, value in (settings or self.settings()).items():
            words += ["--conf", f"{setting}={value}"]
        return self.start(*words, name=name)

    @property
    def driver_machine(self) -> Machine:
        return self.network.machines[0]

    def executors(self) -> list[psutil.Process]:
        """Returns the JVMs of the executors on all machines."""
        return [executor for worker in self.workers for executor in executors(worker.pid)]

    def python_workers(self) -> list[psutil.Process]:
        """Returns the Pythons of tasks on all machines."""
        return [python for worker in self.workers for python in python_workers(worker.pid)]


CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@contextlib.contextmanager
def running_cluster(
    network: Network, installation: Installation, instance: AwsInstance, folder: Path
) -> Iterator[Cluster]:
    """Starts the processes of a cluster, which reach the servers of the instance."""
    (folder / "program.py").write_text(Path(program.__file__).read_text())
    with contextlib.ExitStack() as stack:
        environment = _base_environment(folder)
        for name, value in instance.environment.items():
            if value.startswith("http://127.0.0.1:"):
                port = stack.enter_context(relay(network.address, urlparse(value).port or 0))
                value = f"http://{network.address}:{port}"
            environment[name] = value
        plain = {n: v for n, v in environment.items() if not n.startswith(("AWS_", "SLEEPER_"))}
        first, *others = network.machines
        log = folder / "master.log"
        options = ["--host", first.name, "--port", "7077"]
        stack.enter_context(_running(first, "master.Master", options, log, plain))
        master = wait_for_url(log)
        workers = []
        for machine in others:
            options = ["--host", machine.name, "--cores", str(CORES_PER_WORKER), "--memory", "1g"]
            options += ["--work-dir", str(folder / machine.name), master]
            log = folder / f"{machine.name}.log"
            process = _running(machine, "worker.Worker", options, log, plain)
            workers.append(stack.enter_context(process))
        yield Cluster(network, master, tuple(workers), installation, instance, environment, folder)


def _base_environment(folder: Path) -> dict[str, str]:
    (folder / "home").mkdir()
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    # Executors do not get the options of the driver.
    options = os.environ[JAVA_OPTIONS]
    own = {"HOME": str(folder / "home"), "SPARK_HOME": str(_HOME), "JDK_JAVA_OPTIONS": options}
    return kept | own


@contextlib.contextmanager
def _running(
    machine: Machine, name: str, options: list[str], log: Path, environment: Mapping[str, str]
) -> Iterator["subprocess.Popen[bytes]"]:
    words = [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
    command = machine.command(*words, "--webui-port", "0", *options)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        kill_family(process.pid)
        process.wait()
