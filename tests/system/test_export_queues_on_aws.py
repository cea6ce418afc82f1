"""Functions of export queues over real servers, one of which is killed while it exports.

S3 is SeaweedFS, DynamoDB is dynoxide, SQS is ministack's.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sleeper.export_queue.parsing import NewQueue
from sleeper.export_queue.service import create_queue
from sleeper.export_queue.store import open_export_store
from sleeper.instance import Instance
from sleeper.jobs.queue import Message, QueueName
from tests.handlers import functions
from tests.handlers.conftest import Lambda, add_rows, batch_of, make_table
from tests.servers.aws_instance import AwsInstance
from tests.system.export_runs import add_exporter

QUEUE = QueueName.EXPORT_QUEUE
KEYS = 500
CLAIM_SECONDS_MAX = 60


@pytest.fixture
def aws(instance_on_aws: Instance) -> Lambda:
    return Lambda(instance_on_aws)


def drain_in_process(instance: AwsInstance, messages: tuple[Message, ...]) -> int:
    """Runs the function that drains, in a process as in its container; returns its status."""
    command = [sys.executable, "-m", "tests.system.image_function", "drain_exports"]
    variables = {"SLEEPER_INSTANCE": instance.where, "POWERTOOLS_TRACE_DISABLED": "true"}
    ended = subprocess.run(
        command,
        input=json.dumps(batch_of(messages)) + "\n",
        env={**os.environ, **instance.environment, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return ended.returncode


def received(folder: Path) -> dict[int, set[int]]:
    """Returns the sequences by key."""
    found: dict[int, set[int]] = {}
    for line in (folder / "received").read_text().splitlines():
        export = json.loads(line)
        found.setdefault(export["key"], set()).add(export["sequence"])
    return found


@pytest.mark.slow
def test_a_function_that_dies_while_it_exports_loses_nothing(
    aws: Lambda, deployed_instance: AwsInstance, tmp_path: Path
) -> None:
    instance, folder = aws.instance, tmp_path / "receiver"
    folder.mkdir()
    add_exporter(instance, tmp_path)
    make_table(instance, "t")
    options = {"folder": str(folder)}
    create_queue(
        instance,
        NewQueue("q", "t", "ingest", "k", "v", "python:ToFile", options=options, buckets=5),
    )
    add_rows(instance, "t", *range(KEYS))
    assert aws.call(functions.follow_exports)["exports"] == KEYS
    (folder / "die before 3").touch()
    messages = instance.jobs.queue(QUEUE).receive(10)
    assert drain_in_process(deployed_instance, messages) == 9
    store = open_export_store(instance)
    assert 0 < store.counts("q").pending <= KEYS
    for message in messages:
        instance.jobs.queue(QUEUE).release(message.receipt)
    deadline = time.monotonic() + CLAIM_SECONDS_MAX
    while store.counts("q").pending:
        assert time.monotonic() < deadline, store.buckets("q")
        if again := instance.jobs.queue(QUEUE).receive(10, 1):
            assert drain_in_process(deployed_instance, again) == 0
            for message in again:
                instance.jobs.queue(QUEUE).delete(message.receipt)
        else:
            instance.jobs.queue(QUEUE).send_all(
                [json.dumps({"queue": "q", "bucket": each.bucket}) for each in store.buckets("q")],
                [f"q/{each.bucket}" for each in store.buckets("q")],
            )
    found = received(folder)
    assert set(found) == set(range(KEYS))
    assert {len(sequences) for sequences in found.values()} == {1}
    assert store.counts("q").dead == 0
