"""A table of the Python API with one long key and one text value, and its compaction."""

from typing import Any

import sleeper
from sleeper.compaction.plan import compact_table
from sleeper.compaction.service import run_compaction_message
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName

KEY_AND_VALUE: dict[str, Any] = {
    "rowKeyFields": [{"name": "key", "type": "LongType"}],
    "sortKeyFields": [],
    "valueFields": [{"name": "value", "type": "StringType"}],
}


def read_keys(table: sleeper.Table, as_of: int | None = None) -> list[int]:
    """Returns the keys of a version, by default the newest, in order."""
    keys: list[int] = table.query(as_of=as_of).to_arrow()["key"].to_pylist()
    return keys


def compact(instance: sleeper.Instance, name: str = "rows") -> int:
    """Compacts all files of the table. Returns the number of jobs."""
    return compact_fully(instance._ports, name)


def compact_fully(instance: Instance, name: str) -> int:
    """Compacts all files of the table. Returns the number of jobs."""
    compact_table(instance, name, True)
    return run_compaction_jobs(instance)


def run_compaction_jobs(instance: Instance) -> int:
    """Runs the jobs that are queued. Returns their number."""
    queue = instance.jobs.queue(QueueName.COMPACTION)
    jobs = 0
    while messages := queue.receive():
        for message in messages:
            run_compaction_message(instance, message.body)
            queue.delete(message.receipt)
            jobs += 1
    return jobs
