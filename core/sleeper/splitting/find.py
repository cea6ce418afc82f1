"""Sends leaves over the threshold to the splitting queue.

A leaf is found again until it is split, which may take long. To avoid duplicate messages, a
local runner stores the sent leaves in memory, and a lambda queries the job tracker.
"""

import json
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass

from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import JobEvent, JobKind, JobStep
from sleeper.jobs.queue import QueueName
from sleeper.partitions.partition import PartitionId
from sleeper.properties.instance import QUEUE_RECEIVES_MAX, QUEUE_VISIBILITY_SECONDS
from sleeper.properties.table import SPLIT_THRESHOLD_ROWS
from sleeper.statestore.reading.partition_queries import LeafRows
from sleeper.statestore.reading.table_state import TableState
from sleeper.tables import TableRef


def find_partitions_to_split(state: TableState, threshold: int) -> list[LeafRows]:
    """Returns leaves over the threshold that may be split, those with the most rows first.

    The row counts are those of the state.
    """
    over = [leaf for leaf in state.partitions.leaf_rows() if leaf.rows_total > threshold]
    unsplittable = set(state.partitions.unsplittable()) if over else set()
    matches = [leaf for leaf in over if leaf.partition_id not in unsplittable]
    return sorted(matches, key=lambda leaf: (-leaf.rows_total, leaf.partition_id))


def find_leaves(table: OpenTable) -> list[PartitionId]:
    """Returns the leaves of the table to split, those with the most rows first."""
    threshold = table.properties().get(SPLIT_THRESHOLD_ROWS)
    with table.state.reading() as state:
        return [leaf.partition_id for leaf in find_partitions_to_split(state, threshold)]


_BATCH_SIZE = 500
_GROWTH = 1.5


@dataclass(frozen=True, slots=True)
class SentSplit:
    """The number of the table, and the rows of a leaf, when the leaf was last sent."""

    number: int
    rows: int


def send_splits(
    instance: Instance,
    ref: TableRef,
    sent: MutableMapping[str, SentSplit],
    number: int,
    sends_again: bool = True,
) -> int:
    """Sends the leaves over the threshold to the splitting queue. Returns their number.

    `sent` is the caller's memory of sent leaves. A leaf that is still one may have a single key or
    fewer rows than estimated. Unless `sends_again`, it is sent again only after it has grown by
    half, because most transactions change nothing about that. An unchanged table is not searched
    again.
    """
    table = OpenTable(instance, ref)
    threshold = table.properties().get(SPLIT_THRESHOLD_ROWS)
    with table.state.reading() as state:
        result = find_partitions_to_split(state, threshold)
    new = [leaf for leaf in result if _is_new(leaf, sent, number, sends_again)]
    _send(instance, ref, [leaf.partition_id for leaf in new])
    sent.update({leaf.partition_id: SentSplit(number, leaf.rows_total) for leaf in new})
    return len(new)


def _is_new(
    leaf: LeafRows, sent: MutableMapping[str, SentSplit], number: int, sends_again: bool
) -> bool:
    before = sent.get(leaf.partition_id)
    if before is None or before.number == number:
        return before is None
    return sends_again or leaf.rows_total >= before.rows * _GROWTH


def send_new_splits(instance: Instance, ref: TableRef) -> int:
    """Sends splits without a memory: a leaf is sent at most once per retry period of the queue.

    The tracker knows a request as a job of the leaf's id and the number of that time since the
    epoch. It is sent first and recorded after, so that none is lost; one that is sent twice
    finds its leaf split.
    """
    result = find_leaves(OpenTable(instance, ref))
    properties = instance.properties()
    tries_ms = 1000 * properties.get(QUEUE_VISIBILITY_SECONDS) * properties.get(QUEUE_RECEIVES_MAX)
    period = instance.clock() // tries_ms
    sent = 0
    for start in range(0, len(result), _BATCH_SIZE):
        requests = {f"{each}@{period}": each for each in result[start : start + _BATCH_SIZE]}
        new = instance.jobs.tracker.unknown(ref.id, list(requests))
        _send(instance, ref, [requests[request] for request in new])
        now_ms = instance.clock()
        instance.jobs.tracker.record(*(_request(ref, request, now_ms) for request in new))
        sent += len(new)
    return sent


def _send(instance: Instance, ref: TableRef, leaves: Sequence[PartitionId]) -> None:
    bodies = [json.dumps({"tableId": ref.id, "partitionId": leaf}) for leaf in leaves]
    instance.jobs.queue(QueueName.SPLITTING).send_all(bodies)


def _request(ref: TableRef, request_id: str, now_ms: int) -> JobEvent:
    return JobEvent(ref.id, request_id, JobKind.SPLIT, JobStep.CREATED, now_ms)
