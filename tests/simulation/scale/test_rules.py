"""The rules are those of the product: of its templates, properties and constants."""

import pytest

from simulation.scale.rules import Rules, read_rules
from sleeper.properties.deployment import (
    COMMITTER_CONCURRENCY_RESERVED,
    COMPACTION_CREATION_MEMORY_MB,
)
from sleeper.properties.instance import (
    COLLECTION_PERIOD_MINUTES,
    COMPACTION_ARM_CPU,
    COMPACTION_CREATION_PERIOD_MINUTES,
    COMPACTION_TASKS_MAX,
    INGEST_VISIBILITY_SECONDS,
)
from sleeper.systems import queues

_CHANGED = {
    COMPACTION_CREATION_PERIOD_MINUTES.name: "7",
    COMPACTION_CREATION_MEMORY_MB.name: "3000",
    COMPACTION_ARM_CPU.name: "2048",
    COMPACTION_TASKS_MAX.name: "17",
    COMMITTER_CONCURRENCY_RESERVED.name: "5",
}


@pytest.fixture(scope="module")
def rules() -> Rules:
    return read_rules(_CHANGED)


def test_a_changed_property_changes_the_rules(rules: Rules) -> None:
    assert rules.schedules["compaction-job-creation"].period_seconds == 7 * 60
    creation = rules.queues["compaction_job_creation"].receiver
    assert creation is not None
    assert creation.memory_mb == 3000
    assert rules.tasks["compaction"].cpus == 2.0
    assert rules.tasks["compaction"].count_max == 17
    commits = rules.queues["commits"]
    assert commits.receiver is not None
    assert commits.receiver.reserved == commits.at_once_max == 5


def test_other_rules_are_the_declared_defaults(rules: Rules) -> None:
    collection = rules.schedules["garbage-collection"]
    assert collection.period_seconds == 60 * (COLLECTION_PERIOD_MINUTES.default or 0)
    assert rules.queues["ingest"].visibility_seconds == INGEST_VISIBILITY_SECONDS.default
    assert rules.queues["ingest"].receiver is None
    for name, rule in rules.queues.items():
        assert rule.fifo == queues()[name].deployed_name.endswith(".fifo")


def test_each_operation_on_tables_has_a_queue_and_a_schedule(rules: Rules) -> None:
    operations = [name for name in rules.queues if name.replace("_", "-") in rules.schedules]

    assert sorted(operations) == [
        "compaction_job_creation",
        "find_partitions_to_split",
        "garbage_collection",
        "orphan_collection",
        "state_snapshots",
        "table_metrics",
    ]
    assert all(rules.queues[name].batch == 1 for name in operations)
