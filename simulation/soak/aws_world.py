"""An instance on AWS's services: SeaweedFS, dynoxide and ministack, each behind a proxy.

Its functions run in one process, and its tasks in one each. SeaweedFS and dynoxide are killed and
started again; ministack stores its state at its end, so that it is asked to end.
"""

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

from simulation.soak.journal import Journal
from simulation.soak.processes import Process, WrongClock
from simulation.soak.proxy import Proxy, running_proxies
from simulation.soak.world import PROPERTIES, ROOT, Upload, process_environment, rows_of
from sleeper.aws.instance import open_aws_instance
from sleeper.clock import Clock
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueSettings
from tests.servers.aws_instance import AwsInstance, AwsServers, aws_instance
from tests.servers.dynoxide import dynoxide
from tests.servers.ministack import ministack
from tests.servers.seaweedfs import seaweedfs

_VISIBILITY_SECONDS = 30
_PASS_PERIOD_SECONDS = 3.0
_PASS_SECONDS = 6.0
_VALUES = {
    **PROPERTIES,
    "sleeper.queue.visibility.timeout.seconds": str(_VISIBILITY_SECONDS),
    "sleeper.ingest.queue.visibility.timeout.seconds": str(_VISIBILITY_SECONDS),
    "sleeper.ingest.keepalive.period.seconds": "5",
    "sleeper.task.idle.stop.seconds": "3600",
}


@dataclass
class AwsWorld:
    """The instance behind the proxies."""

    folder: Path
    instance: AwsInstance
    proxies: Sequence[Proxy]
    servers: list[Process]
    background: list[Process]
    passed_at: float = 0.0

    @property
    def where(self) -> str:
        return self.instance.where

    def environment(self, clock: WrongClock) -> dict[str, str]:
        direct = self.instance.servers
        replaced = {
            urlsplit(url).port: proxy.port
            for url, proxy in zip(_urls(direct), self.proxies, strict=True)
        }
        environment = process_environment(self.folder, self.where, clock)
        state = self.folder / f"state-{clock.path.name}"
        for name, value in direct.environment(state).items():
            port = urlsplit(value).port if value.startswith("http://") else None
            environment[name] = f"http://127.0.0.1:{replaced[port]}" if port else value
        return environment

    def open(self, clock: Clock) -> Instance:
        return open_aws_instance(self.instance.id, clock)

    def source(self, path: Path) -> str:
        return f"s3://{self.instance.source_bucket}/{path.name}"

    def uploads(self, path: Path) -> tuple[Upload, ...]:
        return ((str(path), self.instance.source_bucket, path.name),)

    def destination(self, name: str) -> str:
        return f"s3://{self.instance.source_bucket}/{name}"

    def rows_of_files(self, location: str) -> list[tuple[int, str]]:
        parts, client = urlsplit(location), self.instance.s3()
        prefix = parts.path.strip("/") + "/"
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=parts.netloc, Prefix=prefix)
        keys = [each["Key"] for page in pages for each in page.get("Contents", ())]
        bodies = [client.get_object(Bucket=parts.netloc, Key=key)["Body"].read() for key in keys]
        return rows_of([BytesIO(body) for body in bodies])

    def set_faults(self, probability: float) -> None:
        for proxy in self.proxies:
            proxy.probability = probability

    def pass_time(self) -> None:
        if time.monotonic() - self.passed_at > _PASS_PERIOD_SECONDS:
            self.passed_at = time.monotonic()
            self.instance.servers.others.pass_seconds(_PASS_SECONDS)


def _urls(servers: AwsServers) -> tuple[str, str, str]:
    return servers.s3.endpoint, servers.dynamo.url, servers.others.url


@contextlib.contextmanager
def aws_world(
    folder: Path, clock: WrongClock, journal: Journal, chance: random.Random
) -> Iterator[AwsWorld]:
    """Starts the servers, and creates an instance without a deployment.

    `chance` decides which exchanges the proxies fail.
    """
    settings = QueueSettings(_VISIBILITY_SECONDS, 1000)
    with contextlib.ExitStack() as stack:
        servers = AwsServers(
            stack.enter_context(seaweedfs(folder)),
            stack.enter_context(dynoxide(folder, folder / "dynamo.db")),
            stack.enter_context(ministack(folder, is_restartable=True)),
        )
        names = ("S3", "DynamoDB", "SQS")
        proxies = [
            Proxy(name, urlsplit(url).port or 0, random.Random(chance.random()), journal)
            for name, url in zip(names, _urls(servers), strict=True)
        ]
        stack.enter_context(running_proxies(*proxies))
        instance = stack.enter_context(aws_instance(servers, folder, _VALUES, settings))
        processes = [
            _server("SeaweedFS", servers.s3.process, folder),
            _server("dynoxide", servers.dynamo.process, folder),
            _server("ministack", servers.others.process, folder, is_asked=True),
        ]
        world = AwsWorld(folder, instance, proxies, processes, [])
        world.background += _background(world, clock)
        journal.record("world", kind="aws", where=world.where)
        try:
            yield world
        finally:
            for process in processes:
                process.kill()


def _server(
    name: str, process: "subprocess.Popen[bytes] | None", folder: Path, is_asked: bool = False
) -> Process:
    assert process is not None
    command = [str(each) for each in process.args]  # type: ignore[union-attr]
    server = Process(name, name, command, {}, folder, is_asked_to_end=is_asked)
    server.process = process
    return server


def _background(world: AwsWorld, clock: WrongClock) -> list[Process]:
    environment = world.environment(clock)
    functions = [sys.executable, "-m", "simulation.soak.functions"]
    task = [sys.executable, str(ROOT / "containers" / "worker" / "main.py")]
    return [
        Process("functions", "functions", functions, environment, world.folder),
        *(
            Process(
                kind, f"{kind} task", task, {**environment, "SLEEPER_TASK_KIND": kind}, world.folder
            )
            for kind in ("ingest", "compaction")
        ),
    ]
