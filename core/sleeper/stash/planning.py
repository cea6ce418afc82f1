"""Plans a stash: cuts its tables, and divides them into pieces and tasks.

A piece is a leaf, or a part of a large one, and becomes a file. A task is a group of adjacent
small pieces, or one larger piece. The plan follows from the cuts, so planning can be repeated.
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
from sleeper.partitions.region import Region
from sleeper.query.distributed.plan import (
    cut_leaves,
    divide_region,
    group_small,
    leaf_sizer,
)
from sleeper.query.plan import SelectedLeaf
from sleeper.schema.model import Schema
from sleeper.stash.cut import (
    LostTableError,
    cut_at_one_moment,
    cut_each,
    find_table,
    release_cuts,
)
from sleeper.stash.layout import piece_name
from sleeper.stash.left_out import choose_for_planning, needs_all_tables, record_left_out
from sleeper.stash.owner import claim_root
from sleeper.stash.progress import TableProgress
from sleeper.stash.record import Cut, StashRecord, StashRequest
from sleeper.stash.spark_table import is_queued
from sleeper.tables import TableId

_TASK_BYTES = 32 * 1024**2
_TASK_PIECES_MAX = 100
_TASKS_PER_SEND = 1000
_WRITERS = 16

SendTasks = Callable[[TableId, Sequence[int] | None], None]
"""Receives the table and numbers of tasks, when they are recorded.

The numbers are None for a table that a Spark job writes, when all its tasks are recorded.
"""


@dataclass(frozen=True, slots=True)
class Piece:
    """A region of a table, at most a leaf, and the name of its file."""

    file: str
    region: Region


def plan_stash(
    instance: Instance,
    record: StashRecord,
    owner: str,
    send: SendTasks = lambda _table, _tasks: None,
    on_table: Callable[[str], None] = lambda _: None,
    spark_bytes: int = 0,
) -> tuple[Cut, ...]:
    """Cuts the tables, records and sends all tasks, and returns the cuts. Can be repeated.

    Spark writes tables of at least `spark_bytes`; 0 is none.
    A table that is deleted meanwhile is left out. LostTableError if it was asked for by name, and
    not by a schedule.
    LostTableError also if another instance writes the root.
    """
    cuts = record.cuts() or _cut_tables(instance, record, owner)
    claim_root(instance, record)
    progress = record.progress()
    for cut in cuts:
        if progress.get(cut.id, TableProgress()).tasks is None:
            on_table(cut.table)
            _plan_table(instance, record, cut, send, spark_bytes)
    return cuts


def send_unfinished(record: StashRecord, cuts: Iterable[Cut], send: SendTasks) -> int:
    """Sends the recorded tasks that are not done, and returns their number."""
    progress = record.progress()
    count = 0
    for cut in cuts:
        table = progress.get(cut.id, TableProgress())
        if table.unfinished:
            uses_spark = table.uses_spark and not is_queued(record, cut.id)
            send(cut.id, None if uses_spark else table.unfinished)
        count += len(table.unfinished)
    return count


def read_task(record: StashRecord, schema: Schema, table_id: TableId, number: int) -> list[Piece]:
    """Returns the pieces of a task. NotFoundError if it is not recorded."""
    what = f"task {number} of stash {record.name}"
    raw = parse_json(record.read_task(table_id, number), what, DataError)
    return [Piece(each["file"], region_from_json(schema, each["region"])) for each in raw]


def drop_table(record: StashRecord, cut: Cut) -> None:
    """Leaves out a table that was deleted. LostTableError if it was asked for by name."""
    if needs_all_tables(record.request):
        raise LostTableError(f"table {cut.table!r} was deleted while stash {record.name} was made")
    record.record_dropped(cut.id)


def _cut_tables(instance: Instance, record: StashRecord, owner: str) -> tuple[Cut, ...]:
    try:
        chosen = choose_for_planning(instance, record.request)
    except (InvalidRequestError, NotFoundError) as error:
        raise LostTableError(f"since stash {record.name} was started: {error}") from error
    record_left_out(record, chosen.left_out)
    tables = [OpenTable(instance, ref) for ref in chosen.tables]
    if record.request.atomic:
        cuts = cut_at_one_moment(tables, owner)
    else:
        cuts = cut_each(tables, owner, may_vanish=not needs_all_tables(record.request))
    if (piece_bytes := record.request.piece_bytes) is not None:
        cuts = [replace(cut, piece_bytes=piece_bytes) for cut in cuts]
    if record.record_cuts(cuts):
        return tuple(cuts)
    # Another process has cut the tables at the same time.
    release_cuts(instance, cuts)
    return record.cuts() or ()


def _plan_table(
    instance: Instance, record: StashRecord, cut: Cut, send: SendTasks, spark_bytes: int
) -> None:
    table = find_table(instance, cut)
    if table is None:
        drop_table(record, cut)
        return
    uses_spark = 0 < spark_bytes <= _table_bytes(table, cut)

    def write(number: int, pieces: list[Piece]) -> None:
        lines = [
            {"file": each.file, "region": region_to_json(cut.table_schema, each.region)}
            for each in pieces
        ]
        record.write_task(cut.id, number, json.dumps(lines, separators=(",", ":")).encode())

    count = 0
    tasks = _make_tasks(table, cut, record.request)
    # A table of a terabyte has tens of thousands of tasks, and a function has 15 minutes.
    with ThreadPoolExecutor(_WRITERS, "plan-stash") as threads:
        while chunk := list(islice(tasks, _TASKS_PER_SEND)):
            numbers = range(count, count + len(chunk))
            deque(threads.map(write, numbers, chunk), maxlen=0)
            if not uses_spark:
                send(cut.id, numbers)
            count += len(chunk)
    if uses_spark:
        record.record_spark(cut.id)
        send(cut.id, None)
    record.record_planned(cut.id, count)


def _table_bytes(table: OpenTable, cut: Cut) -> int:
    """Returns the bytes of the data files of a table at its cut."""
    with table.state.reading(cut.version) as state:
        return state.files.extent().bytes


def _make_tasks(table: OpenTable, cut: Cut, request: StashRequest) -> Iterator[list[Piece]]:
    """Yields the pieces of each task, in key order."""
    sized = _make_pieces(table, cut, request)
    groups = group_small(
        sized,
        lambda each: each[1],
        min(_TASK_BYTES, cut.piece_bytes),
        lambda group, _: len(group) < _TASK_PIECES_MAX,
    )
    return ([piece for piece, _ in group] for group in groups)


def _make_pieces(
    table: OpenTable, cut: Cut, request: StashRequest
) -> Iterator[tuple[Piece, float]]:
    """Yields the pieces of a table with the approximate bytes of their data files."""
    for page in cut_leaves(table.state, cut.version):
        size = leaf_sizer([leaf.plan for _, leaf in page])
        for shard, leaf in page:
            regions = [leaf.leaf.region]
            if size(leaf.plan) > cut.piece_bytes:
                regions = _divide(table, cut, leaf)
            for number, region in enumerate(regions):
                file = piece_name(cut.table, shard, cut.id, number, request.format)
                yield Piece(file, region), size(leaf.plan) / len(regions)


def _divide(table: OpenTable, cut: Cut, leaf: SelectedLeaf) -> list[Region]:
    """Divides a large leaf at quantiles of its files' sketches."""
    files = [scan.file for scan in leaf.plan.scans]
    root = table.instance.storage.root
    keys = LeafKeys(cut.table_schema, leaf.leaf.region, files, cut.sketches, root)
    return divide_region(keys, cut.piece_bytes)
