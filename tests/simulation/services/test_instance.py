"""An instance on AWS over the simulated services, in one process and in virtual time."""

import json
import random
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

import sleeper
from simulation.calls import Call, Fault
from simulation.services.deployment import deploy
from sleeper.aws.instance import STATE_FOLDER_VARIABLE, open_aws_instance
from sleeper.committer import commit_messages
from sleeper.compaction.plan import compact_table
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.garbage_collection.service import collect_table, finish_deletions
from sleeper.instance import Instance
from sleeper.jobs.event import new_task_id
from sleeper.jobs.queue import QueueName
from sleeper.splitting.service import split_table
from sleeper.workers.worker import Worker
from tests.simulation.services.worlds import World

SCHEMA = {
    "rowKeyFields": [{"name": "key", "type": "StringType"}],
    "valueFields": [{"name": "amount", "type": "LongType"}],
}


@pytest.fixture
def ports(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    world.folder = tmp_path / "objects"
    services = world.services(world.folder)
    with services.install():
        monkeypatch.setenv(STATE_FOLDER_VARIABLE, str(tmp_path / "state"))
        deploy(services, "simulated", {"sleeper.engine.threads": "1"})
        with closing(open_aws_instance("simulated", world.now_ms)) as opened:
            yield opened


def work(instance: Instance) -> None:
    """Runs queued jobs and commits, as tasks and the committer do."""
    worker = Worker(instance, new_task_id(), threading.Event())
    commits = instance.jobs.queue(QueueName.COMMITS)
    is_idle = False
    while not is_idle:
        is_idle = not worker.run_one()
        while messages := commits.receive(10):
            assert commit_messages(instance, messages).failed == []
            for message in messages:
                commits.delete(message.receipt)
            is_idle = False


def test_a_table_is_ingested_split_compacted_collected_queried_and_deleted(
    ports: Instance, world: World
) -> None:
    settings = {
        "sleeper.table.gc.delay.minutes": "0",
        "sleeper.table.partition.splitting.threshold": "600",
    }
    opened = sleeper.Instance(ports)
    table = opened.create_table("t", SCHEMA, settings)
    rows = [{"key": f"{i:04}", "amount": i} for i in range(1000)]
    for start in range(0, 1000, 250):
        table.ingest(pa.Table.from_pylist(rows[start : start + 250]))
    assert split_table(ports, "t")
    table.delete(ranges=[("0500", "0600")])
    kept = rows[:500] + rows[600:]
    assert table.query().to_arrow().to_pylist() == kept

    while compact_table(ports, "t", full=True).created:
        work(ports)
    world.pass_seconds(3600)
    assert collect_table(ports, "t").files == 4
    assert table.query().to_arrow().to_pylist() == kept
    assert table.query(keys=[["0042"]]).to_arrow().to_pylist() == [rows[42]]
    answer = opened.sql("SELECT sum(amount) AS s FROM t").to_arrow().to_pylist()
    assert answer == [{"s": sum(row["amount"] for row in kept)}]

    (data,) = ports.storage.root.buckets
    opened.delete_table("t", now=True)
    assert finish_deletions(ports) == 1
    assert list(ports.storage.root.list_objects("")) == []
    assert [path for path in (world.folder / data.name).rglob("*") if path.is_file()] == []


def test_lost_responses_and_failures_of_all_services_change_no_result(
    ports: Instance, world: World
) -> None:
    opened = sleeper.Instance(ports)
    table = opened.create_table("t", SCHEMA)
    chosen = random.Random(1)

    def fail(call: Call) -> Fault | None:
        return chosen.choice([*Fault]) if chosen.random() < 0.2 else None

    world.fail = fail
    for i in range(20):
        for _attempt in range(20):
            try:
                table.ingest(pa.table({"key": [f"{i:02}"], "amount": [i]}), job_id=f"job-{i}")
                break
            except UnavailableError:
                continue
    world.fail = lambda _call: None
    assert table.query().to_arrow()["amount"].to_pylist() == list(range(20))


def test_user_code_and_secrets_are_read_from_the_services(ports: Instance, world: World) -> None:
    world.made.clear()
    with pytest.raises(InvalidRequestError, match="does not exist"):
        ports.read_secret("password")
    assert world.made == ["secretsmanager.get_secret_value password"]


def test_queues_follow_the_properties_of_the_instance(world: World) -> None:
    services = world.services()
    values = {
        "sleeper.queue.receives.max": "50",
        "sleeper.compaction.queue.visibility.timeout.seconds": "20",
    }
    deploy(services, "x", values)
    queues = services.sqs.queues
    compaction, exports = queues["sleeper-x-compaction-jobs"], queues["sleeper-x-export-queue.fifo"]
    assert compaction.attributes["VisibilityTimeout"] == "20"
    assert exports.attributes["VisibilityTimeout"] == "330"
    for queue in (compaction, exports):
        assert json.loads(queue.attributes["RedrivePolicy"])["maxReceiveCount"] == 50
