"""Bulk exports of tables: the message (docs/formats.md, "Bulk export messages") and its run."""

import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from sleeper.errors import DataError, InvalidRequestError, NotFoundError, StateMovedOnError
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import JobKind, JobRunRef
from sleeper.jobs.ingest_job import MessageCodec, new_job_id
from sleeper.jobs.queue import Message
from sleeper.json_codec import JsonCodec, Member, parse_json
from sleeper.lenient_json import LenientText, OptionalText
from sleeper.partitions.partition import Partition
from sleeper.processing.model import Filter, Processing, check_processing
from sleeper.processing.text import FiltersText, format_filters, parse_filters
from sleeper.query.engine import QueryEngine
from sleeper.query.hold import VersionHold
from sleeper.query.plan import check_has_rows
from sleeper.query.request import Query
from sleeper.query.rows.output import write_client_parquet
from sleeper.query.run import RESTARTS, run_query
from sleeper.query.service import make_query_table
from sleeper.reports.access import check_export_access
from sleeper.retries import retry
from sleeper.runs.task import record_task
from sleeper.runs.tracking import RunResult, find_job_table, track_run
from sleeper.statestore.store import StateStore
from sleeper.storage.location import DataRoot, open_root
from sleeper.tables import TableId

logger = logging.getLogger(__name__)


_PLAN = "_plan.json"
_MARKER = "_SUCCESS"


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """The exported version and its leaves, one file each, and the filters of its rows."""

    version: int
    leaves: tuple[Partition, ...]
    filters: Annotated[FiltersText, Member(optional=True)] = ()


_PLAN_CODEC = JsonCodec(ExportPlan)


@dataclass(frozen=True, slots=True)
class BulkExportResult:
    """The files below `location`: one per leaf, of one version of the table."""

    export_id: str
    location: str
    version: int
    rows: int
    files: int
    done_before: bool = False


@dataclass(frozen=True, slots=True)
class ExportFolder:
    """The folder `<table id>/<export id>/` below the exports' root."""

    root: DataRoot
    table_id: str
    export_id: str

    @property
    def location(self) -> str:
        """The folder's path or URL."""
        return self.root.url_of(f"{self.table_id}/{self.export_id}")

    def path(self, name: str) -> str:
        """Returns the path of an object in the folder, relative to the root."""
        return f"{self.table_id}/{self.export_id}/{name}"

    def leaf_path(self, leaf: Partition) -> str:
        """Returns the path of the file of a leaf, relative to the root."""
        return self.path(f"{leaf.id}.parquet")

    def list_paths(self) -> set[str]:
        """Returns the paths of all objects in the folder, relative to the root."""
        own = f"{self.table_id}/{self.export_id}"
        return {each.path for each in self.root.list_objects(own)}

    def read_json(self, name: str) -> Any:
        """Returns the object's JSON, None if there is no object. DataError if it is not JSON."""
        try:
            text = self.root.read(self.path(name))
        except NotFoundError:
            return None
        return parse_json(text, self.path(name), DataError)


def read_finished_export(folder: ExportFolder) -> BulkExportResult | None:
    """Returns the result of an earlier run of the export; None if no run has finished."""
    raw = folder.read_json(_MARKER)
    if raw is None:
        return None
    counts = (raw["version"], raw["rows"], raw["files"])
    return BulkExportResult(folder.export_id, folder.location, *counts, done_before=True)


def check_filters(folder: ExportFolder, filters: tuple[Filter, ...]) -> None:
    """Raises InvalidRequestError if an earlier run of the export had other filters."""
    raw = folder.read_json(_PLAN)
    if raw is None:
        return
    planned = _PLAN_CODEC.from_json(raw, "export plan", DataError).filters
    if planned != filters:
        raise InvalidRequestError(
            f"export {folder.export_id} has filters {format_filters(filters)!r} (expected "
            f"{format_filters(planned)!r}, as in its first run, or another id)"
        )


def plan_export(
    folder: ExportFolder, state: StateStore, version: int, filters: tuple[Filter, ...] = ()
) -> ExportPlan:
    """Returns the plan of the export's first run, and writes it if this run is the first.

    The plan of a first run reads the version, with the filters.

    InvalidRequestError if its version is not kept any more, or a filter does not fit.
    """
    with state.reading(version) as held:
        plan = ExportPlan(version, tuple(held.partitions.leaves()), filters)
        check_processing(Processing(filters), held.schema)
        oldest = held.oldest_version
    if not folder.root.create(folder.path(_PLAN), json.dumps(_PLAN_CODEC.to_json(plan)).encode()):
        check_filters(folder, filters)  # another run may just have written it
        plan = _PLAN_CODEC.from_json(folder.read_json(_PLAN), "export plan", DataError)
    if plan.version < oldest:
        raise InvalidRequestError(
            f"export {folder.export_id} started at version {plan.version}, which is not kept any "
            f"more (the oldest is {oldest}): export again under another id"
        )
    return plan


WriteLeaves = Callable[[OpenTable, ExportFolder, ExportPlan], int]
"""Writes the file of each leaf of a plan, whose version is held. Returns the number of rows."""


def make_leaf_writer(
    table: OpenTable, folder: ExportFolder, plan: ExportPlan
) -> Callable[[Partition], int]:
    """Returns a function that writes a leaf's file, and returns the number of its rows.

    It replaces an existing file by an equal one, and may be used by several threads.
    """
    engine = _make_engine(table)
    query_table = make_query_table(table)

    def write(leaf: Partition) -> int:
        processing = Processing(plan.filters)
        query = Query((leaf.region,), version=plan.version, processing=processing)
        with (
            folder.root.replacing(folder.leaf_path(leaf)) as sink,
            run_query(query, query_table, engine, is_held=True) as rows,
        ):
            return write_client_parquet(rows.schema, rows, sink)

    return write


def write_in_threads(table: OpenTable, folder: ExportFolder, plan: ExportPlan) -> int:
    """Writes the leaves in this process (see `WriteLeaves`)."""
    write = make_leaf_writer(table, folder, plan)
    threads = table.instance.queries.engine().settings.engine.threads
    return sum(_map_in_threads(write, plan.leaves, threads))


def write_export(
    table: OpenTable, folder: ExportFolder, plan: ExportPlan, write_leaves: WriteLeaves
) -> BulkExportResult:
    """Writes the files of the leaves, and then the marker."""
    rows = write_leaves(table, folder, plan)
    marker = {"version": plan.version, "rows": rows, "files": len(plan.leaves)}
    folder.root.create(folder.path(_MARKER), json.dumps(marker).encode())
    logger.info("exported table", extra={"job_id": folder.export_id})
    return BulkExportResult(folder.export_id, folder.location, plan.version, rows, len(plan.leaves))


def _map_in_threads(
    work: Callable[[Partition], int], leaves: Sequence[Partition], threads: int
) -> list[int]:
    executor = ThreadPoolExecutor(threads, "bulk-export")
    try:
        return list(executor.map(work, leaves))
    finally:
        # The first failure cancels the others.
        executor.shutdown(cancel_futures=True)


# The id is also a folder's name.
_EXPORT_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class BulkExportJob:
    """The export of a table, given by `table_name` or `table_id`, under an id.

    `filters` remove rows besides those of the table, at the time of the exported version.
    InvalidRequestError if the id is not a valid folder name.
    """

    id: Annotated[LenientText, Member("exportId")]
    table_name: OptionalText = None
    table_id: OptionalText = None
    filters: Annotated[FiltersText, Member(optional=True)] = ()

    def __post_init__(self) -> None:
        if not _EXPORT_ID.fullmatch(self.id):
            raise InvalidRequestError(
                f"export id {self.id[:200]!r}: expected at most 128 letters, digits, '-', '_' or "
                "'.'"
            )


EXPORT_JOBS = MessageCodec(BulkExportJob, "bulk export message", "exportId", ("filters",))


def export_table(
    instance: Instance,
    table_name: str,
    output: str | Path | None = None,
    export_id: str | None = None,
    filters: str = "",
    write_leaves: WriteLeaves = write_in_threads,
) -> BulkExportResult:
    """Exports a table now, below a folder, `s3://bucket/prefix`, or the instance's exports root.

    `filters` remove rows besides those of the table. NotFoundError if the table does not exist.
    """
    instance.tables.index.find(table_name)
    job = BulkExportJob(export_id or new_job_id(), table_name, filters=parse_filters(filters))
    with record_task(instance, JobKind.BULK_EXPORT) as task:
        root = (
            instance.storage.exports()
            if output is None
            else open_root(str(output), instance.storage.root)
        )
        result = _run(instance, job, root, task.id, write_leaves)
        rows = 0 if result.done_before else result.rows
        task.add_job(rows, rows)
    return result


def run_bulk_export_message(
    instance: Instance, message: Message, task_id: str | None = None
) -> BulkExportResult:
    """Runs the export of a message. Records an invalid message as rejected under its own id."""
    kind = JobKind.BULK_EXPORT
    with track_run(instance, kind, TableId(""), message.message_id).reject_errors():
        job = EXPORT_JOBS.parse(message.body, message.message_id)
    table = find_job_table(instance, kind, job)
    with track_run(instance, kind, table.ref.id, job.id).reject_errors():
        check_export_access(table, message.sender)
    return _run(instance, job, instance.storage.exports(), task_id)


def run_queued_export(instance: Instance, message: Message, task_id: str) -> tuple[int, int]:
    """Runs the job of a message. Returns the numbers of rows read and written."""
    rows = run_bulk_export_message(instance, message, task_id).rows
    return rows, rows


def _run(
    instance: Instance,
    job: BulkExportJob,
    root: DataRoot,
    task_id: str | None,
    write_leaves: WriteLeaves = write_in_threads,
) -> BulkExportResult:
    table = find_job_table(instance, JobKind.BULK_EXPORT, job)
    folder = ExportFolder(root, table.ref.id, job.id)

    def work(_: JobRunRef) -> BulkExportResult:
        check_filters(folder, job.filters)
        return read_finished_export(folder) or _export(table, folder, job, write_leaves)

    tracker = track_run(instance, JobKind.BULK_EXPORT, table.ref.id, job.id, task_id)
    return tracker.execute(work, lambda r: RunResult(None if r.done_before else r.rows))


def _make_engine(table: OpenTable) -> QueryEngine:
    shared = table.instance.queries.engine()
    # The limits of queries do not apply to a whole table. An export may serve as a backup, so
    # its input is always verified.
    settings = replace(shared.settings, rows_max=0, seconds_max=0, verifies_checksums=True)
    return QueryEngine(settings, shared.clock)


def _export(
    table: OpenTable, folder: ExportFolder, job: BulkExportJob, write_leaves: WriteLeaves
) -> BulkExportResult:
    engine = table.instance.queries.engine()
    try:
        with _hold_newest(table, folder.export_id, engine) as newest:
            plan = plan_export(folder, table.state, newest, job.filters)
            is_held = plan.version == newest
            planned = _hold_version(table, plan.version, folder.export_id, engine)
            with nullcontext() if is_held else planned:
                return write_export(table, folder, plan, write_leaves)
    except (StateMovedOnError, DataError):
        # Files are missing also if the table was deleted.
        table.check_active()
        raise


@contextmanager
def _hold_newest(table: OpenTable, export_id: str, engine: QueryEngine) -> Iterator[int]:
    """Holds the newest version, and yields it.

    A version of a snapshot table can expire as soon as a load replaces it, so another is held then.
    """

    def acquire() -> tuple[int, VersionHold]:
        with table.state.reading() as state:
            check_has_rows(table.ref.name, state)
            version = state.version
        hold = _make_hold(table, version, export_id, engine)
        hold.acquire()
        return version, hold

    version, hold = retry(acquire, on=StateMovedOnError, backoff=RESTARTS)
    try:
        yield version
    finally:
        hold.release()


@contextmanager
def _hold_version(
    table: OpenTable, version: int, export_id: str, engine: QueryEngine
) -> Iterator[None]:
    hold = _make_hold(table, version, export_id, engine)
    try:
        hold.acquire()
    except StateMovedOnError as error:
        raise InvalidRequestError(
            f"export {export_id}: version {version} is no longer readable: export again under "
            f"another id ({error})"
        ) from error
    try:
        yield
    finally:
        hold.release()


def _make_hold(table: OpenTable, version: int, export_id: str, engine: QueryEngine) -> VersionHold:
    owner, seconds = f"bulk export {export_id}", engine.settings.hold_seconds
    return VersionHold(table.state, version, seconds, engine.clock, owner)
