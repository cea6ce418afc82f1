"""Functions and tasks on an AWS instance over real servers, from rules to a maintained table.

S3 is SeaweedFS, DynamoDB is dynoxide, SQS is ministack's. The test does what Lambda and ECS do:
it hands messages to handlers, and starts containers' entry points as processes.
"""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sleeper.api import Instance as OpenInstance
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.jobs.queue import QueueName
from sleeper.jobs.status import JobState
from sleeper.tables import TableRef, new_table_id
from sleeper.workers.schedule import fan_out_tables
from tests.handlers import functions
from tests.handlers.conftest import Lambda, add_rows, make_table
from tests.ports import with_ports
from tests.servers.aws_instance import AwsInstance

ROOT = Path(__file__).parents[2]
TASK_SECONDS_MAX = 120


@pytest.fixture
def aws(instance_on_aws: Instance) -> Lambda:
    return Lambda(instance_on_aws)


def run_task(deployed_instance: AwsInstance, kind: str) -> None:
    """Runs a container's process until it ends."""
    message = {"SLEEPER_INSTANCE": deployed_instance.where, "SLEEPER_TASK_KIND": kind}
    settings = {**os.environ, **deployed_instance.environment, **message}
    command = [sys.executable, str(ROOT / "containers" / "worker" / "main.py")]
    subprocess.run(command, env=settings, check=True, timeout=TASK_SECONDS_MAX)


def test_rules_split_compact_and_collect_a_table(
    aws: Lambda, deployed_instance: AwsInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = aws.instance
    instance.change_properties(
        {"sleeper.task.idle.stop.seconds": "1", "sleeper.snapshot.transactions.min": "1"}
    )
    ref = make_table(
        instance,
        "t",
        partition_splitting_threshold="10",
        gc_delay_minutes="0",
        compaction_strategy_class="BasicCompactionStrategy",
        compaction_files_batch_size="2",
    )
    for start in (0, 1):
        add_rows(instance, "t", *range(start, 40, 2))

    def operate(operation: QueueName, handler: object) -> None:
        monkeypatch.setenv("SLEEPER_OPERATION", operation.value)
        assert aws.call(functions.fan_out_tables) == {"tables": 1}
        assert aws.take(operation, handler) == 1  # type: ignore[arg-type]

    operate(QueueName.FIND_PARTITIONS_TO_SPLIT, functions.find_partitions_to_split)
    assert aws.take(QueueName.SPLITTING, functions.split_partition) == 1
    operate(QueueName.FIND_PARTITIONS_TO_SPLIT, functions.find_partitions_to_split)
    assert aws.take(QueueName.SPLITTING, functions.split_partition) == 0
    operate(QueueName.COMPACTION_JOB_CREATION, functions.create_compaction_jobs)
    run_task(deployed_instance, "compaction")
    states = [job.state for job in instance.jobs.tracker.recent(JobKind.COMPACTION)]
    assert states == [JobState.FINISHED] * 4
    assert aws.take(QueueName.COMMITS, functions.commit_transactions) == 4
    operate(QueueName.GARBAGE_COLLECTION, functions.collect_garbage)
    operate(QueueName.STATE_SNAPSHOTS, functions.take_state_snapshots)
    operate(QueueName.ORPHAN_COLLECTION, functions.collect_orphans)
    operate(QueueName.TABLE_METRICS, functions.report_table_metrics)
    assert set(aws.call(functions.sweep_instance).values()) == {0}

    with instance.tables.state(ref.id).reading() as state:
        totals = state.files.totals()
    assert (totals.rows, totals.leaves, totals.files, totals.unreferenced_files) == (40, 4, 4, 0)
    assert instance.tables.state(ref.id).newest_snapshot() is not None
    jobs = instance.jobs.tracker.recent(JobKind.COMPACTION)
    assert [job.state for job in jobs] == [JobState.COMMITTED] * 4
    (task,) = instance.jobs.tasks.recent("compaction")
    assert (task.jobs, task.running) == (4, False)
    keys = OpenInstance(instance).table("t").query().to_arrow()["k"].to_pylist()
    assert keys == list(range(40))


def test_a_thousand_tables_are_fanned_out_within_seconds(instance_on_aws: Instance) -> None:
    refs = tuple(TableRef(new_table_id(), f"t{i}") for i in range(1000))
    many = with_ports(instance_on_aws, tables={"index": SimpleNamespace(list=lambda: refs)})
    assert fan_out_tables(many, QueueName.GARBAGE_COLLECTION) == 1000
    queue = instance_on_aws.jobs.queue(QueueName.GARBAGE_COLLECTION)
    assert queue.counts().visible == 1000
    messages = queue.receive(10)
    assert all(message.body == message.group for message in messages)
