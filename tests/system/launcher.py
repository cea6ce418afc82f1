"""ECS tasks and image functions, which an emulator without Docker does not run.

    with launcher(instance, environment, folder) as running:
        running.kill("ingest")

Each task that RunTask was asked for becomes a process of its container's entry point, once, with
its definition's environment and role; its end is reported to ECS. Each function from an image
becomes a process that calls its handler under its role, with a poller for its event source.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from tests.child_processes import python_path
from tests.system.deployed import DeployedInstance
from tests.system.roles import credentials_of

ROOT = Path(__file__).parents[2]
# Polls are requests to an emulator that all processes of a deployment share.
_POLL_SECONDS = 1.0
_STREAM_SECONDS = 1.0
_END_SECONDS = 30


@dataclass
class Launcher:
    """The running processes by task ARN. Their output is in the folder, by task."""

    instance: DeployedInstance
    environment: Mapping[str, str]
    folder: Path
    exit_statuses: list[int] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _tasks: dict[str, tuple[str, subprocess.Popen[bytes]]] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def kill(self, kind: str) -> int:
        """Kills every task of that kind as the kernel does; returns how many there were."""
        result = [p for family, p in list(self._tasks.values()) if family.endswith(f"{kind}-task")]
        for process in result:
            process.kill()
        return len(result)

    @property
    def running(self) -> int:
        """How many tasks run."""
        return len(self._tasks)

    def look(self) -> None:
        """Starts requested tasks and reports ended ones."""
        ecs = self._client("ecs")
        for cluster in ecs.list_clusters()["clusterArns"]:
            self._end_tasks(ecs, cluster)
            self._start_tasks(ecs, cluster)

    def end(self) -> None:
        """Ends every task as ECS does."""
        for _, process in self._tasks.values():
            process.terminate()
        for _, process in self._tasks.values():
            process.wait(_END_SECONDS)

    def _client(self, service: str) -> Any:
        """Returns a client that retries errors of a loaded emulator, as ECS and Lambda do."""
        original = self.environment
        return boto3.client(
            service,
            endpoint_url=original["AWS_ENDPOINT_URL"],
            region_name=original["AWS_REGION"],
            aws_access_key_id=original["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=original["AWS_SECRET_ACCESS_KEY"],
            config=Config(retries={"mode": "standard", "total_max_attempts": 5}),
        )

    def _start_tasks(self, ecs: Any, cluster: str) -> None:
        requested = ecs.list_tasks(cluster=cluster, desiredStatus="RUNNING")["taskArns"]
        fresh = [arn for arn in requested if arn not in self._seen]
        if not fresh:
            return
        for task in ecs.describe_tasks(cluster=cluster, tasks=fresh)["tasks"]:
            arn = task["taskArn"]
            self._seen.add(arn)
            definition, environment, arguments = _container(ecs, task["taskDefinitionArn"])
            family, role = definition["family"], definition["taskRoleArn"]
            kind = family.rpartition("-task")[0].rpartition("-")[2]
            entry = ROOT / "containers" / "worker" / "main.py"
            name = f"{kind}-{arn.rpartition('/')[2]}"
            with (self.folder / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, str(entry), *arguments],
                    env=self._environment(environment, name, role),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            self._tasks[arn] = family, process

    def _end_tasks(self, ecs: Any, cluster: str) -> None:
        for arn, (_, process) in list(self._tasks.items()):
            if process.poll() is not None:
                ecs.stop_task(cluster=cluster, task=arn, reason="Essential container exited")
                self.exit_statuses.append(process.returncode)
                del self._tasks[arn]

    def _environment(self, told: Mapping[str, str], name: str, role: str) -> dict[str, str]:
        """Returns an environment with a disk of its own and the role, as in a container."""
        disk = self.folder / "disks" / name
        disk.mkdir(parents=True)
        folder = {"PATH": os.environ["PATH"], "PYTHONPATH": python_path(ROOT / "core", ROOT)}
        role_told = credentials_of(self.instance.client, role)
        return {**folder, **self.environment, **role_told, **told, "TMPDIR": str(disk)}

    def poll_queue(self, function: str, source: Mapping[str, Any], stop: threading.Event) -> None:
        """Feeds a function from its queue by its event source, until the stop event is set."""
        sqs = self._client("sqs")
        queue = sqs.get_queue_url(QueueName=source["EventSourceArn"].rpartition(":")[2])["QueueUrl"]
        with self.image_function(function) as process:
            while not stop.is_set():
                messages = sqs.receive_message(
                    QueueUrl=queue,
                    MaxNumberOfMessages=source["BatchSize"],
                    WaitTimeSeconds=1,
                    AttributeNames=["All"],
                ).get("Messages", [])
                if messages:
                    result = _call(process, messages)
                    for message in messages:
                        if message["MessageId"] not in result:
                            receipt = message["ReceiptHandle"]
                            sqs.delete_message(QueueUrl=queue, ReceiptHandle=receipt)

    def poll_stream(self, function: str, source: Mapping[str, Any], stop: threading.Event) -> None:
        """Feeds a function with the newer events of a stream that its event source selects."""
        streams, arn = self._client("dynamodbstreams"), source["EventSourceArn"]
        shards = streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]
        positions = [
            streams.get_shard_iterator(
                StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="LATEST"
            )["ShardIterator"]
            for shard in shards
        ]
        with self.image_function(function) as process:
            while not stop.wait(_STREAM_SECONDS):
                for i, position in enumerate(positions):
                    found = streams.get_records(ShardIterator=position)
                    positions[i] = found["NextShardIterator"]
                    chosen = [each for each in found["Records"] if is_selected(source, each)]
                    if chosen:
                        call(process, json.loads(json.dumps({"Records": chosen}, default=str)))

    @contextlib.contextmanager
    def image_function(
        self, function: str, name: str | None = None
    ) -> Iterator["subprocess.Popen[str]"]:
        """Runs a function from an image until the context ends. `call` calls it.

        A second process of a function has another name.
        """
        variables = self.instance.function_environment(function)
        handler = variables["POWERTOOLS_SERVICE_NAME"].replace("-", "_")
        command = [sys.executable, "-m", "tests.system.image_function", handler]
        role = self.instance.role_of_function(function)
        variables = {"AWS_LAMBDA_FUNCTION_NAME": function, **variables}
        environment = self._environment(variables, name or function, role)
        with (
            (self.folder / f"{name or function}.log").open("wb") as log,
            subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            ) as process,
        ):
            try:
                yield process
            finally:
                assert process.stdin is not None
                process.stdin.close()


@contextlib.contextmanager
def launcher(
    instance: DeployedInstance, environment: Mapping[str, str], folder: Path
) -> Iterator[Launcher]:
    """Runs what is asked for until the context ends.

    An error that ends the context has as notes what the launcher failed at, since a launcher
    that has ended looks like tasks that never start or end.
    """
    folder.mkdir()
    running = Launcher(instance, environment, folder)
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(_POLL_SECONDS):
            running.look()

    threads = [threading.Thread(target=_noted, args=(running, look))]
    for function, source in _sources_of_images(instance.client("lambda")):
        is_stream = ":dynamodb:" in source["EventSourceArn"]
        poll_source = running.poll_stream if is_stream else running.poll_queue
        poll = partial(poll_source, function, source, stop)
        threads.append(threading.Thread(target=_noted, args=(running, poll)))
    for thread in threads:
        thread.start()
    try:
        yield running
    except BaseException as error:
        for failure in running.failures:
            error.add_note(f"the launcher failed: {failure}")
        raise
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        running.end()


def _noted(running: Launcher, work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as error:
        running.failures.append(repr(error))


def _sources_of_images(client: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """Functions from images with their event sources, which the emulator leaves to us."""
    results = []
    for page in client.get_paginator("list_functions").paginate():
        for function in page["Functions"]:
            if function["PackageType"] == "Image":
                name = function["FunctionName"]
                listing = client.list_event_source_mappings(FunctionName=name)
                for source in listing["EventSourceMappings"]:
                    if ":sqs:" not in source["EventSourceArn"]:
                        client.update_event_source_mapping(UUID=source["UUID"], Enabled=False)
                    results.append((name, source))
    return results


def is_selected(source: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    """Returns whether the filters of an event source select a record: by values and prefixes."""
    filters = source.get("FilterCriteria", {}).get("Filters", [])
    return not filters or any(_matches(json.loads(f["Pattern"]), record) for f in filters)


def _matches(pattern: Any, value: Any) -> bool:
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(
            _matches(each, value.get(name)) for name, each in pattern.items()
        )
    return any(
        str(value).startswith(each["prefix"]) if isinstance(each, dict) else value == each
        for each in pattern
    )


def _container(ecs: Any, definition: str) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """The definition, and environment and arguments of its one container."""
    message = ecs.describe_task_definition(taskDefinition=definition)["taskDefinition"]
    (container,) = message["containerDefinitions"]
    environment = {item["name"]: item["value"] for item in container["environment"]}
    return message, environment, container.get("command") or []


def call(process: "subprocess.Popen[str]", event: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the handler's answer to an event."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(event) + "\n")
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


def _call(process: "subprocess.Popen[str]", messages: list[dict[str, Any]]) -> set[str]:
    """Returns the handler's answer to a batch: the ids of failed messages."""
    records = [
        {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": message["Attributes"],
            "messageAttributes": {},
            "eventSource": "aws:sqs",
        }
        for message in messages
    ]
    answer = call(process, {"Records": records})
    return {item["itemIdentifier"] for item in answer["batchItemFailures"]}
