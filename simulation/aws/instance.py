"""The AWS instance of a world: the product's adapters and handlers over simulated services."""

import os
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any

from simulation.aws import exporter_wheel
from simulation.aws.tasks import ERRORS, TaskProcesses
from simulation.instances import BackgroundProcess
from simulation.processes import Processes
from simulation.scheduling.scheduler import Machine
from simulation.services.deployment import deploy
from simulation.services.lambdas import Functions, Source
from simulation.services.s3.buckets import StoredBucket
from simulation.services.world import Services
from simulation.surroundings import folder_of, remove_folder
from simulation.world import World
from sleeper.aws.config_bucket import deployed_value
from sleeper.aws.instance import STATE_FOLDER_VARIABLE, open_aws_instance
from sleeper.errors import SleeperError
from sleeper.instance import Instance
from sleeper.properties.deployed import CONFIG_BUCKET, DATA_BUCKET
from sleeper.stash.properties import STASH_BUCKET
from sleeper.workers import lambda_function

_ID = "simulated"
_PREFIX = f"sleeper-{_ID}-"
_SOURCES = "sources"
# No cluster takes part.
_PROPERTIES = {"sleeper.default.table.ingest.batcher.ingest.queue": "standard_ingest"}
_ASYNCHRONOUS = (
    "sleeper.default.table.ingest.files.commit.async",
    "sleeper.default.table.compaction.job.commit.async",
)
_CONTAINERS = (1, 2, 4)
_LOOKS_PER_PERIOD = 4
_SKEW_SECONDS_MAX = 3600.0


class AwsInstance:
    """An instance in the simulated account of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.processes = Processes(world, _make_machine)
        self.base = folder_of(os.getpid())
        remove_folder(os.getpid())
        self.base.mkdir()
        world.trace.folder = str(self.base)
        tempfile.tempdir = str(self.base)
        self._idle_seconds = 1.0
        self.failures = 0
        self._installed = ExitStack()
        self.services = Services(world, world.scheduler.sleep, self.base / "objects")
        self.services.dynamo.capacity.is_limited = self.services.sqs.is_limited = True
        self._installed.enter_context(self.services.install())
        os.environ[STATE_FOLDER_VARIABLE] = str(self.base / "state")
        os.environ["POWERTOOLS_TRACE_DISABLED"] = "true"
        functions: Any = lambda_function
        functions.log_metrics = lambda *_: None

    def create(self, values: Mapping[str, str]) -> None:
        """Deploys the instance."""
        random = Random(f"{self.world.seed} commits")
        commits = {name: random.choice(("false", "true")) for name in _ASYNCHRONOUS}
        properties = deploy(self.services, _ID, {**values, **_PROPERTIES, **commits})
        self._stashes = properties.get(STASH_BUCKET)
        self._data_bucket = deployed_value(properties, DATA_BUCKET)
        config = self.services.s3.bucket(deployed_value(properties, CONFIG_BUCKET))
        path = f"code/{exporter_wheel.FILE_NAME}"
        config.put(path, exporter_wheel.make_wheel(), self.world.now_ms())
        self.functions = Functions(self.services, _PREFIX, self.world.limited)

    def open(self) -> Instance:
        """Opens the instance for the calling process."""
        while True:
            with suppress(SleeperError):
                return open_aws_instance(_ID)
            self.world.scheduler.sleep(1.0)

    def open_to_check(self) -> Instance:
        """Opens the instance for checks."""
        return open_aws_instance(_ID)

    def put_source(self, name: str, content: bytes) -> str:
        """Stores an object to be ingested, and returns its path."""
        self.services.s3.bucket(_SOURCES).put(name, content, self.world.now_ms())
        return f"s3://{_SOURCES}/{name}"

    def destination(self, name: str) -> str:
        """Returns a prefix of the bucket that tasks of stashes write to."""
        return f"s3://{self._stashes}/{name}"

    @property
    def exporter(self) -> str:
        """The name that the wheel registers."""
        return exporter_wheel.EXPORTER

    @property
    def machine_folder(self) -> Path:
        """A folder beside those of the processes' copies of states."""
        return self.base

    def background(self, random: Random) -> list[BackgroundProcess]:
        """Returns containers of functions, which take what is due, and the starts of tasks."""
        containers = random.choice(_CONTAINERS)
        return [
            BackgroundProcess("tasks", self._start_tasks),
            *(
                BackgroundProcess("function", _Container(self, Random(random.random())).run)
                for _ in range(containers)
            ),
        ]

    def set_idle_seconds(self, seconds: float) -> None:
        """Sets how often containers and tasks look for work, and rules start functions."""
        self._idle_seconds = seconds
        # Without faults, a lease of a compaction outlasts the start of a task.
        looks = _LOOKS_PER_PERIOD if self.world.faults.is_on else 1
        self.functions.period_ms_min = int(seconds * looks * 1000)

    def wait_for_work(self) -> None:
        """Waits before the next look for work."""
        self.world.scheduler.sleep(self._idle_seconds)

    def stop_all(self) -> None:
        """Ends all processes."""
        self.failures += 1
        self.processes.kill_all()

    def list_data(self) -> list[str]:
        """Returns the keys of objects."""
        return [key for key in self._data.keys("") if "/data/" in key]

    def read_data(self, path: str) -> bytes | None:
        """Returns the content of an object."""
        stored = self._data.objects.get(path)
        return None if stored is None else stored.content

    def write_data(self, path: str, content: bytes) -> None:
        """Changes an object, not what S3 says of it."""
        self._data.damage(path, content)

    @property
    def _data(self) -> StoredBucket:
        return self.services.s3.bucket(self._data_bucket)

    def remove(self) -> None:
        """Restores what was replaced, and removes the folder of objects."""
        self._installed.close()
        remove_folder(os.getpid())

    def _start_tasks(self) -> None:
        """Starts a process for each task that ECS was asked to run."""
        tasks = self.services.control.tasks
        started = TaskProcesses(self.world, self, tasks)
        while True:
            while tasks.pending:
                task = tasks.pending.popleft()
                started.start(task, self.functions.task_kind(task))
            self.wait_for_work()


def _make_machine(process: str) -> Machine:
    """Returns a machine, whose clock AWS synchronises unless it is a client's."""
    return Machine() if process == "client" else Machine(skew_seconds_max=_SKEW_SECONDS_MAX)


class _Container:
    """A container of functions. It opens the instance once, and runs one function at a time."""

    def __init__(self, owner: AwsInstance, random: Random) -> None:
        self._owner = owner
        self._random = random

    def run(self) -> None:
        """Runs what is due, for ever."""
        instance = self._owner.open()
        while True:
            if not self._run_due(instance):
                self._owner.wait_for_work()

    def _run_due(self, instance: Instance) -> bool:
        functions = self._owner.functions
        invocation = functions.take_invocation()
        if invocation is not None:
            with self._owner.world.operating(invocation.rule.name, ""), suppress(*ERRORS):
                functions.run(invocation, instance)
            return True
        sources = [each for each in functions.sources if functions.has_messages(each)]
        if sources:
            self._deliver(self._random.choice(sources), instance)
        return bool(sources)

    def _deliver(self, source: Source, instance: Instance) -> None:
        with self._owner.world.operating(source.queue, ""), suppress(*ERRORS):
            self._owner.functions.deliver_once(source, instance)
