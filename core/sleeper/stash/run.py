"""Makes a stash in this process, or continues one (docs/stash.md)."""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from sleeper.errors import ConflictError, SleeperError
from sleeper.instance import Instance
from sleeper.renewal import Renewal
from sleeper.stash.finish import complete_stash, describe_decision, fail_stash, hold_owner, stash_id
from sleeper.stash.layout import StashedTable, StashFormat
from sleeper.stash.planning import plan_stash
from sleeper.stash.record import Outcome, StashRecord, StashRequest, TableVersion
from sleeper.stash.start import lock_stash, start_stash
from sleeper.stash.task import TaskWriter
from sleeper.stash.versions import LostTableError, hold_minutes, renew_holds

logger = logging.getLogger(__name__)

OnStage = Callable[[str], None]
"""Receives the table that is being copied."""

WriteTasks = Callable[[TableVersion, Sequence[int]], None]
"""Does these tasks of a table."""
OpenTasks = Callable[[Instance, StashRecord], AbstractContextManager[WriteTasks]]
"""Returns what does the tasks of a stash, until the context ends."""


@contextmanager
def tasks_in_threads(instance: Instance, record: StashRecord) -> Iterator[WriteTasks]:
    """Yields a function that does tasks in this process."""
    writer = TaskWriter(instance, record)
    threads = ThreadPoolExecutor(writer.threads, "stash")

    def write(version: TableVersion, numbers: Sequence[int]) -> None:
        deque(threads.map(partial(writer.write, version), numbers), maxlen=0)

    try:
        yield write
    finally:
        # The first failure cancels the others.
        threads.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True)
class StashResult:
    """A complete stash: its root below the destination, and its tables."""

    id: str
    destination: str
    root: str
    tables: tuple[StashedTable, ...]


def run_stash(
    instance: Instance,
    destination: str,
    tables: Sequence[str] = (),
    atomic: bool = False,
    piece_bytes: int | None = None,
    on_stage: OnStage = lambda _: None,
    format: StashFormat = StashFormat.JSON,
    exclude: Sequence[str] = (),
) -> StashResult:
    """Makes a stash of the tables, by default all but the excluded, and waits for its end.

    Each table is copied at its newest version. If `atomic`, all are copied at the versions that
    they had at one moment. InvalidRequestError for an unusable destination or two tables that would
    share a directory, NotFoundError for an unknown table, ConflictError if another stash of the
    destination is being made.
    """
    request = StashRequest(
        destination, tuple(tables), atomic, piece_bytes, format, exclude=tuple(exclude)
    )
    with ExitStack() as locked:
        record = start_stash(instance, request, locked=locked)
        return make_locked_stash(instance, record, on_stage)


def make_stash(
    instance: Instance,
    record: StashRecord,
    on_stage: OnStage = lambda _: None,
    open_tasks: OpenTasks = tasks_in_threads,
) -> StashResult:
    """Makes what is missing of a stash, and waits for its end.

    After most errors the stash can be continued. ConflictError if another process makes it, or if
    it was cancelled or failed.
    """
    with ExitStack() as locked:
        lock_stash(locked, record, instance.clock)
        return make_locked_stash(instance, record, on_stage, open_tasks)


def make_locked_stash(
    instance: Instance,
    record: StashRecord,
    on_stage: OnStage = lambda _: None,
    open_tasks: OpenTasks = tasks_in_threads,
) -> StashResult:
    """As `make_stash`, in a process that has the lock of the stash."""
    decision = record.decision()
    if decision is not None and decision.outcome is not Outcome.COMPLETE:
        raise ConflictError(f"stash {record.name} {describe_decision(decision)}")
    try:
        if decision is None:
            _copy(instance, record, on_stage, open_tasks)
    except SleeperError as error:
        if isinstance(error, LostTableError) or record.versions() is None:
            fail_stash(instance, record, str(error))
        raise
    tables = complete_stash(instance, record)
    return StashResult(stash_id(instance, record), record.request.destination, record.name, tables)


def _copy(
    instance: Instance, record: StashRecord, on_stage: OnStage, open_tasks: OpenTasks
) -> None:
    owner = hold_owner(instance, record)
    versions = plan_stash(
        instance, record, owner, on_table=lambda table: on_stage(f"plan of {table}")
    )
    renew_holds(instance, versions, owner)
    renewal = Renewal(
        f"holds of {owner}",
        lambda: renew_holds(instance, versions, owner),
        hold_minutes(instance) * 60 / 3,
        ends_on=LostTableError,
    )
    progress = record.progress()
    with renewal, open_tasks(instance, record) as write:
        for position, version in enumerate(versions, 1):
            on_stage(f"{version.table} ({position} of {len(versions)})")
            write(version, progress[version.id].unfinished if version.id in progress else [])
            if record.decision() is not None:
                return
