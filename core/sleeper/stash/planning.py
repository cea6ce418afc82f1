"""Plans a stash: chooses the versions of its tables, and divides them into pieces and tasks.

A piece is a leaf, a part of a large one, or small adjacent ones, and becomes a file. A task is a
group of adjacent small pieces, or one larger piece. The plan follows from the versions, so planning
can be repeated.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice

from sleeper.datafiles.leaf_keys import LeafKeys
from sleeper.errors import DataError, InvalidRequestError, NotFoundError
from sleeper.instance import Instance, OpenTable
from sleeper.json_codec import parse_json
from sleeper.partitions.json import region_from_json, region_to_json
from sleeper.partitions.region import Region, are_one_region, hull
from sleeper.query.distributed.plan import (
    cut_leaves,
    divide_region,
    group_small,
    leaf_sizer,
)
from sleeper.query.plan import SelectedLeaf
from sleeper.schema.model import Schema
from sleeper.stash.finish import claim_root
from sleeper.stash.layout import piece_name
from sleeper.stash.message import make_sender
from sleeper.stash.progress import TableProgress
from sleeper.stash.record import StashRecord, StashRequest, TableVersion
from sleeper.stash.spark_table import is_queued
from sleeper.stash.table_choice import choose_for_planning, needs_all_tables, record_omitted
from sleeper.stash.versions import (
    LostTableError,
    find_table,
    hold_at_one_moment,
    hold_each,
    release_holds,
)
from sleeper.tables import TableId

_TASK_BYTES = 32 * 1024**2
_TASK_PIECES_MAX = 100
# Of more leaves, small ones are joined. Few are files of their own, to be read in parallel.
_SEPARATE_LEAVES_MAX = 64
_JOINED_BYTES = 4 * 1024**2
_TASKS_PER_SEND = 1000
_WRITERS = 16

NumberedLeaf = tuple[int, SelectedLeaf]
SendTasks = Callable[[TableId, Sequence[int] | None], None]
"""Receives the table and numbers of tasks, when they are recorded.

The numbers are None for a table that a Spark job writes, when all its tasks are recorded.
"""


@dataclass(frozen=True, slots=True)
class Piece:
    """A region of a table, and the name of its file: a part of a leaf, or small adjacent leaves."""

    file: str
    region: Region


def plan_stash(
    instance: Instance,
    record: StashRecord,
    owner: str,
    send: SendTasks | None = None,
    on_table: Callable[[str], None] = lambda _: None,
    spark_bytes: int = 0,
) -> tuple[TableVersion, ...]:
    """Holds the tables, records and sends all tasks, and returns the versions. Can be repeated.

    By default the tasks of a submitted stash are sent to workers, and those of others to nobody.
    Spark writes tables of at least `spark_bytes`; 0 is none.
    A table that is deleted meanwhile is omitted. LostTableError if it was asked for by name, and
    not by a schedule.
    LostTableError also if another instance writes the root.
    """
    if send is None:
        # If this process dies, the control function sends no task of a table that was planned.
        send = make_sender(instance, record) if record.is_submitted() else _send_nothing
    versions = record.versions() or _hold_tables(instance, record, owner)
    claim_root(instance, record)
    progress = record.progress()
    for version in versions:
        if progress.get(version.id, TableProgress()).tasks is None:
            on_table(version.table)
            _plan_table(instance, record, version, send, spark_bytes)
    return versions


def _send_nothing(_table: TableId, _tasks: Sequence[int] | None) -> None:
    """Leaves the tasks to the process that makes the stash."""


def send_unfinished(record: StashRecord, versions: Iterable[TableVersion], send: SendTasks) -> int:
    """Sends the recorded tasks that are not done, and returns their number."""
    progress = record.progress()
    count = 0
    for version in versions:
        table = progress.get(version.id, TableProgress())
        if table.unfinished:
            uses_spark = table.uses_spark and not is_queued(record, version.id)
            send(version.id, None if uses_spark else table.unfinished)
        count += len(table.unfinished)
    return count


def read_task(record: StashRecord, schema: Schema, table_id: TableId, number: int) -> list[Piece]:
    """Returns the pieces of a task. NotFoundError if it is not recorded."""
    what = f"task {number} of stash {record.name}"
    raw = parse_json(record.read_task(table_id, number), what, DataError)
    return [Piece(each["file"], region_from_json(schema, each["region"])) for each in raw]


def drop_table(record: StashRecord, version: TableVersion) -> None:
    """Leaves out a table that was deleted. LostTableError if it was asked for by name."""
    if needs_all_tables(record.request):
        raise LostTableError(
            f"table {version.table!r} was deleted while stash {record.name} was made"
        )
    record.record_dropped(version.id)


def _hold_tables(instance: Instance, record: StashRecord, owner: str) -> tuple[TableVersion, ...]:
    try:
        chosen = choose_for_planning(instance, record.request)
    except (InvalidRequestError, NotFoundError) as error:
        raise LostTableError(f"since stash {record.name} was started: {error}") from error
    record_omitted(record, chosen.omitted)
    tables = [OpenTable(instance, ref) for ref in chosen.tables]
    if record.request.atomic:
        versions = hold_at_one_moment(tables, owner)
    else:
        versions = hold_each(tables, owner, may_vanish=not needs_all_tables(record.request))
    if (piece_bytes := record.request.piece_bytes) is not None:
        versions = [replace(version, piece_bytes=piece_bytes) for version in versions]
    if record.record_versions(versions):
        return tuple(versions)
    # Another process has chosen versions at the same time.
    release_holds(instance, versions)
    return record.versions() or ()


def _plan_table(
    instance: Instance,
    record: StashRecord,
    version: TableVersion,
    send: SendTasks,
    spark_bytes: int,
) -> None:
    table = find_table(instance, version)
    if table is None:
        drop_table(record, version)
        return
    uses_spark = 0 < spark_bytes <= _table_bytes(table, version)

    def write(number: int, pieces: list[Piece]) -> None:
        lines = [
            {"file": each.file, "region": region_to_json(version.table_schema, each.region)}
            for each in pieces
        ]
        record.write_task(version.id, number, json.dumps(lines, separators=(",", ":")).encode())

    count = 0
    tasks = _make_tasks(table, version, record.request)
    # A table of a terabyte has tens of thousands of tasks, and a function has 15 minutes.
    with ThreadPoolExecutor(_WRITERS, "plan-stash") as threads:
        while chunk := list(islice(tasks, _TASKS_PER_SEND)):
            numbers = range(count, count + len(chunk))
            deque(threads.map(write, numbers, chunk), maxlen=0)
            if not uses_spark:
                send(version.id, numbers)
            count += len(chunk)
    if uses_spark:
        record.record_spark(version.id)
        send(version.id, None)
    record.record_planned(version.id, count)


def _table_bytes(table: OpenTable, version: TableVersion) -> int:
    """Returns the bytes of the data files of a table at its version."""
    with table.state.reading(version.number) as state:
        return state.files.extent().bytes


def _make_tasks(
    table: OpenTable, version: TableVersion, request: StashRequest
) -> Iterator[list[Piece]]:
    """Yields the pieces of each task, in key order."""
    sized = _make_pieces(table, version, request)
    groups = group_small(
        sized,
        lambda each: each[1],
        min(_TASK_BYTES, version.piece_bytes),
        lambda group, _: len(group) < _TASK_PIECES_MAX,
    )
    return ([piece for piece, _ in group] for group in groups)


def _make_pieces(
    table: OpenTable, version: TableVersion, request: StashRequest
) -> Iterator[tuple[Piece, float]]:
    """Yields the pieces of a table with the approximate bytes of their data files."""
    for page in cut_leaves(table.state, version.number):
        for leaves, size in _join_small(page, version.piece_bytes):
            shard, leaf = leaves[0]
            regions = [_region_of(leaves)]
            if size > version.piece_bytes:
                regions = _divide(table, version, leaf)
            for number, region in enumerate(regions):
                file = piece_name(version.table, shard, version.id, number, request.format)
                yield Piece(file, region), size / len(regions)


def _join_small(
    page: list[NumberedLeaf], piece_bytes: int
) -> Iterator[tuple[list[NumberedLeaf], float]]:
    """Yields groups of leaves with their approximate bytes."""
    sizer = leaf_sizer([leaf.plan for _, leaf in page])

    def size(each: NumberedLeaf) -> float:
        return sizer(each[1].plan)

    def can_join(group: list[NumberedLeaf], each: NumberedLeaf) -> bool:
        return are_one_region(_region_of(group), each[1].leaf.region)

    joined = 0 if len(page) <= _SEPARATE_LEAVES_MAX else min(_JOINED_BYTES, piece_bytes)
    for group in group_small(page, size, joined, can_join):
        yield group, sum(map(size, group))


def _region_of(leaves: Sequence[NumberedLeaf]) -> Region:
    """Returns the region of leaves of which each joined the ones before."""
    return hull([leaves[0][1].leaf.region, leaves[-1][1].leaf.region])


def _divide(table: OpenTable, version: TableVersion, leaf: SelectedLeaf) -> list[Region]:
    """Divides a large leaf at quantiles of its files' sketches."""
    files = [scan.file for scan in leaf.plan.scans]
    root = table.instance.storage.root
    keys = LeafKeys(version.table_schema, leaf.leaf.region, files, version.sketches, root)
    return divide_region(keys, version.piece_bytes)
