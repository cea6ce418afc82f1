"""What follows the log of a deployed instance: export queues, and publications for Iceberg."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sleeper.iceberg.locations import metadata_of
from sleeper.iceberg.metadata import current_snapshot
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.opening import open_instance
from tests.handlers.conftest import SCHEDULED
from tests.servers.ministack import ACCOUNT, REGION, Ministack
from tests.system.aws_user import AwsUser
from tests.system.deployed import define_table, deploy, stopwatch, synthesise
from tests.system.launcher import call, launcher
from tests.system.roles import find_refusals

pytestmark = pytest.mark.timeout(600)

INSTANCE_ID = "Exports"
INSTANCE = f"""
sleeper.id={INSTANCE_ID}
sleeper.optional.stacks=ExportQueueStack,IcebergStack
sleeper.export.queue.sqs.arns=arn:aws:sqs:{REGION}:{ACCOUNT}:notes
sleeper.engine.threads=1
"""
SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [{"name": "v", "type": "LongType"}],
}


@contextmanager
def opened() -> Iterator[Instance]:
    with closing(open_instance(f"aws:{INSTANCE_ID}")) as instance:
        yield instance


def ingest(instance: Instance, keys: range, factor: int) -> None:
    rows = pa.table({"k": list(keys), "v": [factor * key for key in keys]})
    ingest_rows(instance, "counts", rows.to_batches())


class Notes:
    """The receiver's own queue."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._url = client.create_queue(QueueName="notes")["QueueUrl"]
        self.exports: list[tuple[int, int]] = []

    def receive(self) -> int:
        """Receives what there is; returns the number of all exports that were received."""
        while True:
            received = self._client.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10)
            messages = received.get("Messages", [])
            for message in messages:
                body = json.loads(message["Body"])
                self.exports.append((body["key"], body["value"]["v"]))
                self._client.delete_message(
                    QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"]
                )
            if not messages:
                return len(self.exports)


def create_queues(user: AwsUser) -> None:
    create = ("export-queue", "create")
    what = ("--table", "counts", "--on", "ingest", "--key", "k", "--value", "v", "--buckets", 7)
    user.sleeper(*create, "copy", *what, "--exporter", "table:copy")
    user.sleeper(*create, "notes", *what, "--exporter", "sqs:notes")


def is_drained(user: AwsUser, *names: str) -> bool:
    for name in names:
        (status,) = user.sleeper("export-queue", "status", name, "--output", "json").rows
        if status["lag"] or status["pending"]:
            return False
        assert status["dead"] == 0
    return True


def published_rows(instance: Instance) -> int:
    """Returns the number of rows of the published version of the table, 0 if there is none."""
    _, metadata = metadata_of(instance.table("counts")).read()
    return 0 if metadata is None else int(current_snapshot(metadata)["summary"]["total-records"])


def test_commits_of_a_deployed_instance_are_exported(
    emulator: Ministack, emulator_environment: dict[str, str], tmp_path: Path
) -> None:
    folder, step = tmp_path / "mine", stopwatch()
    define_table(folder, "counts", SCHEMA, "sleeper.table.iceberg.publish.seconds=60\n")
    (folder / "instance.properties").write_text(INSTANCE)
    templates = synthesise(folder / "instance.properties", tmp_path / "out", lambda_platform="code")
    instance = deploy(emulator.client, templates)
    step("deployed")
    user = AwsUser(emulator.client, INSTANCE_ID, ACCOUNT, "uploads")
    notes = Notes(emulator.client("sqs"))
    with (
        user.as_administrator(),
        opened() as ports,
        launcher(instance, emulator_environment, tmp_path / "tasks") as running,
        running.image_function(f"{user.prefix}-follow-exports", "schedule") as schedule,
    ):
        create_queues(user)
        step("created")
        # Its event may come before the stream is polled, which is a lost one.
        ingest(ports, range(3), 1)
        call(schedule, SCHEDULED)
        user.until(lambda: is_drained(user, "copy", "notes"), "the first exports are drained")
        step("exported what an event missed")
        ingest(ports, range(2, 1000), 10)
        user.until(lambda: is_drained(user, "copy", "notes"), "the commit is exported", pause=0.2)
        step("exported a commit")
        expected = {0: 0, 1: 1, **{k: 10 * k for k in range(2, 1000)}}
        rows = user.rows("copy", tmp_path).to_pydict()
        assert dict(zip(rows["k"], rows["v"], strict=True)) == expected
        user.until(lambda: notes.receive() >= 1001, "the queue has all exports")
        assert sorted(notes.exports) == sorted([(2, 2), *expected.items()])
        user.until(lambda: published_rows(ports) == 1001, "the commit is published", pause=0.2)
        with running.image_function(f"{user.prefix}-publish-tables", "publish-schedule") as again:
            assert call(again, SCHEDULED) == {"published": 0, "problems": 0}
        assert running.failures == []
        step("checked")
    assert find_refusals(tmp_path / "emulator", tmp_path / "tasks") == []
