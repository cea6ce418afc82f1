"""Ingests whose rows are written by several processes, such as Spark's executors.

The leader *begins* the ingest, each process *writes* a part, and the leader commits the files of
all parts under the job's id. Files of repeated parts and of uncommitted jobs are orphans.
"""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import as_plain
from sleeper.datafiles.engine.settings import EngineSettings, spill_folder
from sleeper.datafiles.merge.first_of_key import tie_error
from sleeper.datafiles.merge.iterate import align_to_groups
from sleeper.datafiles.merge.plan import merge
from sleeper.datafiles.merge.request import MergeInput, MergeRequest
from sleeper.datafiles.sources.enrichment import RowEnrichment
from sleeper.datafiles.sources.files import RowChecker, read_batches
from sleeper.datafiles.write.file import FileSettings
from sleeper.datafiles.write.partitioned import FileStrategy, WriteTarget
from sleeper.errors import SleeperError
from sleeper.files import DataFile
from sleeper.ingest.gathered_rows import GatheredRows
from sleeper.ingest.references import choose_references
from sleeper.ingest.run import (
    IngestResult,
    IngestTable,
    commit_new_files,
    make_operations,
)
from sleeper.ingest.service import describe_rows_job, ingest_table
from sleeper.instance import Instance, OpenTable
from sleeper.jobs.event import JobKind, JobStep
from sleeper.partitions.partition import Partition
from sleeper.processing.enrichment import Lookup
from sleeper.properties.instance import SORT_MEMORY_BYTES
from sleeper.runs.commit import RunStart, begin_run, commit_until_settled, find_earlier_commit
from sleeper.runs.engine import engine_settings
from sleeper.runs.tracking import track_run
from sleeper.schema.model import Schema, precedes
from sleeper.statestore.transactions.add_files import NewFile
from sleeper.storage.location import DataRoot
from sleeper.tables import TableRef

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PartTarget:
    """The target of every part, which is sent to the writing processes.

    If a leaf is split concurrently, it keeps the files written for it until push down. `op_column`
    is the column of the rows' operations, and `lookups` fill fields of the rows.
    """

    table_id: str
    schema: Schema
    leaves: tuple[Partition, ...]
    start: RunStart
    files: FileSettings
    strategy: FileStrategy
    op_column: str | None = None
    lookups: tuple[Lookup, ...] = ()


def begin_parts(
    table: IngestTable,
    kind: pa.Schema,
    name: str,
    op_column: str | None = None,
    job_id: str | None = None,
) -> PartTarget:
    """Returns the target for rows of this Arrow schema. `name` identifies the rows in errors.

    InvalidRequestError if columns are missing or extra, or their types can never fit.
    """
    schema = table.source_schema
    checker = RowChecker(schema, name, None, operations=make_operations(schema, op_column))
    checker.check_columns(kind.names)
    checker.check_types(kind)
    start = begin_run(table.state, table.clock, job_id)
    with table.state.reading() as state:
        leaves = tuple(state.partitions.leaves())
    return PartTarget(
        table.table_id,
        table.schema,
        leaves,
        start,
        table.files,
        table.strategy,
        op_column,
        () if table.enrichment is None else table.enrichment.lookups,
    )


def write_part(
    target: PartTarget,
    batches: Iterable[pa.RecordBatch],
    name: str,
    root: DataRoot,
    engine: EngineSettings,
    enrichment: RowEnrichment | None = None,
) -> tuple[NewFile, ...]:
    """Checks, casts, sorts and writes rows, without a commit.

    InvalidRequestError names the row that does not fit, counted within the part, and a key of a
    table of latest rows that several rows have.
    """
    operations = make_operations(target.schema, target.op_column)
    with (
        spill_folder(engine, "ingest") as folder,
        contextlib.closing(
            GatheredRows(target.schema, folder, replace(engine, spill_folder=folder), False)
        ) as gathered,
    ):
        checker = RowChecker(
            target.schema,
            name,
            None,
            operations=operations,
            enrichment=enrichment,
            json_limits=engine.json_limits,
        )
        gathered.add_batches(read_batches(iter(batches), checker))
        if not gathered.unsorted.rows:
            return ()
        where = WriteTarget(
            root,
            target.table_id,
            gathered.written,
            target.leaves,
            target.start.ms,
            target.files,
            engine.threads,
            folder,
        )
        return gathered.write(where, target.strategy)


@dataclass(frozen=True, slots=True)
class BegunIngest:
    """A table and the target of its parts."""

    ref: TableRef
    target: PartTarget


def begin_ingest(
    table: OpenTable,
    kind: pa.Schema,
    name: str,
    op_column: str | None = None,
    job_id: str | None = None,
) -> BegunIngest:
    """Checks that rows of this Arrow schema can fit the table, before rows are read."""
    return BegunIngest(table.ref, begin_parts(ingest_table(table), kind, name, op_column, job_id))


def write_ingest_part(
    instance: Instance,
    begun: BegunIngest,
    batches: Iterable[pa.RecordBatch],
    name: str,
    threads_max: int,
) -> tuple[NewFile, ...]:
    """Writes a part's rows to files, without a commit.

    A part sees one version of what fills its fields; other parts may see a newer one.
    """
    engine = engine_settings(instance, SORT_MEMORY_BYTES)
    engine = replace(engine, threads=min(engine.threads, threads_max))
    target = begun.target
    enrichment = None
    if target.lookups:
        table = OpenTable(instance, begun.ref)
        enrichment = instance.open_enrichment(table, target.lookups, target.schema)
    return write_part(target, batches, name, instance.storage.root, engine, enrichment)


def was_ingested(table: OpenTable, job_id: str) -> bool:
    """Whether the job is committed. InvalidRequestError if another request has its id."""
    return find_earlier_commit(table.state, job_id, describe_rows_job(job_id)) is not None


def commit_ingest(
    instance: Instance, begun: BegunIngest, job_id: str, files: Sequence[NewFile]
) -> IngestResult:
    """Adds the files of all parts to the table in one commit, unless the job was done before.

    StateMovedOnError if the table is gone. InvalidRequestError if several parts have a key of a
    table of latest rows.
    """
    table = OpenTable(instance, begun.ref)
    request = describe_rows_job(job_id)
    try:
        commit_until_settled(table.check_active)
        if begun.target.schema.latest is not None:
            _check_ties(begun.target.schema, files, instance)
        start = begun.target.start
        target = ingest_table(table)
        with table.state.reading() as state:
            added = choose_references(state, target.descent, files)
        result = commit_new_files(target, job_id, start, added, request)
    except SleeperError as error:
        record_failed_ingest(instance, begun, job_id, str(error))
        raise
    rows = {} if result.done_before else {"rows_read": result.rows, "rows_written": result.rows}
    _record(instance, begun, job_id, (JobStep.FINISHED, rows), (JobStep.COMMITTED, {}))
    return result


def _check_ties(schema: Schema, files: Sequence[NewFile], instance: Instance) -> None:
    """Raises InvalidRequestError if rows of several files have the same key and rank.

    Reads the keys of files with overlapping bounds.
    """
    by = None if schema.latest is None else schema.latest.by
    values = tuple(field for field in schema.values if field.name == by)
    ranks = replace(schema, values=values, latest=None)
    names = [field.name for field in ranks.fields]
    root, engine = instance.storage.root, engine_settings(instance, SORT_MEMORY_BYTES)
    for group in _overlapping([new.file for new in files]):
        inputs = tuple(MergeInput(root.url_of(file.path), bytes=file.bytes) for file in group)
        # Each file has a key once, so a group is no longer than this.
        rows = merge(MergeRequest(ranks, inputs), engine)
        keys = [field.name for field in ranks.keys]
        for batch in align_to_groups(rows, keys, len(group), lambda key: AssertionError(key)):
            plain = pa.table({name: as_plain(batch.column(name)) for name in names})
            counts = plain.group_by(names, use_threads=False).aggregate([([], "count_all")])
            tied = counts.filter(pc.greater(counts["count_all"], 1)).slice(0, 1)
            if tied.num_rows:
                raise tie_error(tied.select(names).to_pylist()[0])


def _overlapping(files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    """Yields groups of files whose bounds of the first key field overlap."""
    group: list[DataFile] = []
    for file in sorted(files, key=lambda each: each.smallest_key[0]):
        if group and precedes(max(f.largest_key[0] for f in group), file.smallest_key[0]):
            if len(group) > 1:
                yield group
            group = []
        group.append(file)
    if len(group) > 1:
        yield group


def record_failed_ingest(instance: Instance, begun: BegunIngest, job_id: str, reason: str) -> None:
    """Records the failure of an ingest.

    Collection deletes the written files. This does not, because the commit may have been applied
    although its response was lost.
    """
    _record(instance, begun, job_id, (JobStep.FAILED, {"reasons": (reason,)}))


def _record(
    instance: Instance,
    begun: BegunIngest,
    job_id: str,
    *steps: tuple[JobStep, Mapping[str, object]],
) -> None:
    """Records a run with its start. Logs an error of the tracker: the job may be committed."""
    tracker, now_ms = track_run(instance, JobKind.INGEST, begun.ref.id, job_id), instance.clock()
    started = tracker.run.event(JobStep.STARTED, min(begun.target.start.ms, now_ms))
    ended = (tracker.run.event(step, now_ms, **more) for step, more in steps)  # type: ignore[arg-type]
    tracker.try_record(started, *ended)
