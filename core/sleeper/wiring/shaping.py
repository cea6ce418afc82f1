"""Compaction and splitting of the tables of an instance."""

import json
from collections.abc import MutableMapping

from sleeper.compaction.job import compaction_job_from_json
from sleeper.compaction.planning import CreationReport, create_compaction_jobs
from sleeper.compaction.running import CompactionSettings, run_compaction
from sleeper.datafiles.bound_iterator import TableIterators
from sleeper.errors import InvalidRequestError
from sleeper.partitions.partition import PartitionId
from sleeper.properties.engine import COMPACTION_LEASE_SECONDS, MERGE_MEMORY_BYTES
from sleeper.properties.instance import SPLITTING_FILES_MAX
from sleeper.properties.table import ITERATOR_GROUP_ROWS_MAX, SPLIT_THRESHOLD_ROWS
from sleeper.splitting.key_samples import sample_keys
from sleeper.splitting.planning import (
    SplitResult,
    SplitStatus,
    find_partitions_to_split,
    split_partition,
)
from sleeper.tables.table_index import find_table
from sleeper.tables.table_ref import TableRef
from sleeper.wiring.engine import engine_settings, file_settings
from sleeper.wiring.instance import Instance, OpenTable
from sleeper.wiring.queue_name import QueueName


def compact_table(instance: Instance, name: str, full: bool = False) -> CreationReport:
    """Creates the compaction jobs that the table needs now and sends them to the queue.

    `full` takes all files of every leaf. InvalidRequestError if the table is offline.
    """
    ref = instance.tables.by_name(name)
    if not ref.online:
        raise InvalidRequestError(f"table {name!r} is offline: it is not compacted")
    return create_compaction_jobs_of(instance, ref, full)


def create_compaction_jobs_of(
    instance: Instance, ref: TableRef, full: bool = False
) -> CreationReport:
    """Creates and sends the jobs of one table."""
    table = OpenTable(instance, ref)
    send = instance.queue(QueueName.COMPACTION).send_all
    return create_compaction_jobs(
        ref.id,
        table.state,
        table.properties(),
        instance.jobs,
        send,
        instance.clock,
        full,
        instance.code,
    )


def run_compaction_message(
    instance: Instance, body: str, task_id: str | None = None
) -> tuple[int, int]:
    """Runs the job of a message; returns rows read and written."""
    job = compaction_job_from_json(body)
    table = OpenTable(instance, find_table(instance.tables, None, job.table_id))
    properties = table.properties()
    settings = CompactionSettings(
        engine_settings(instance, MERGE_MEMORY_BYTES),
        file_settings(properties),
        properties.get(COMPACTION_LEASE_SECONDS),
        task_id,
        TableIterators(
            table.ref.name, instance.code, lambda: properties.get(ITERATOR_GROUP_ROWS_MAX)
        ),
    )
    result = run_compaction(
        job, table.state, instance.root, instance.jobs, settings, instance.clock
    )
    return result.rows_read, result.rows_written


def split_table(instance: Instance, name: str) -> list[SplitResult]:
    """Splits every leaf of the table that is over the threshold, now."""
    ref = instance.tables.by_name(name)
    if not ref.online:
        raise InvalidRequestError(f"table {name!r} is offline: it is not split")
    table = OpenTable(instance, ref)
    threshold = table.properties().get(SPLIT_THRESHOLD_ROWS)
    with table.state.reading() as state:
        found = find_partitions_to_split(state, threshold)
    return [_split(table, each.partition_id) for each in found]


def send_splits_of(
    instance: Instance, ref: TableRef, sent_at: MutableMapping[str, int], number: int
) -> int:
    """Sends the leaves over the threshold to the splitting queue; returns how many.

    `sent_at` remembers the table's number at which a leaf was last sent: while the table
    has not changed since, looking again would find the same.
    """
    table = OpenTable(instance, ref)
    threshold = table.properties().get(SPLIT_THRESHOLD_ROWS)
    with table.state.reading() as state:
        found = find_partitions_to_split(state, threshold)
    sent = 0
    for each in found:
        if sent_at.get(each.partition_id) != number:
            sent_at[each.partition_id] = number
            body = json.dumps({"tableId": ref.id, "partitionId": each.partition_id})
            instance.queue(QueueName.SPLITTING).send(body)
            sent += 1
    return sent


def run_split_message(instance: Instance, body: str) -> SplitResult:
    """Splits the leaf that a message names. InvalidRequestError if it names none."""
    try:
        raw = json.loads(body)
        table_id, partition_id = str(raw["tableId"]), PartitionId(str(raw["partitionId"]))
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRequestError(f"not a split: {body[:200]!r}: {error!r}") from error
    table = OpenTable(instance, find_table(instance.tables, None, table_id))
    if not table.ref.online:
        return SplitResult(SplitStatus.GONE)
    return _split(table, partition_id)


def _split(table: OpenTable, partition_id: PartitionId) -> SplitResult:
    root = table.instance.root
    return split_partition(
        partition_id,
        table.state,
        table.properties().get(SPLIT_THRESHOLD_ROWS),
        table.instance.properties().get(SPLITTING_FILES_MAX),
        root.read,
        lambda schema, file, region: sample_keys(root, schema, file, region),
    )
