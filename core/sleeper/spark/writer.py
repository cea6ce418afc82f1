"""`df.write.format("sleeper")` and `writeStream`: executors write files, the driver commits.

Executors write files under new names and return their entries. A repeated or speculative task
leaves orphans, because Spark passes on the entries of one attempt. The commit is one transaction
under the job's id, so it is idempotent.
"""

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.ingest.parts import (
    BegunIngest,
    begin_ingest,
    commit_ingest,
    record_failed_ingest,
    was_ingested,
    write_ingest_part,
)
from sleeper.ingest.run import IngestResult
from sleeper.ingest.service import annotate_errors
from sleeper.instance import OpenTable
from sleeper.spark.options import (
    SINK_OPTIONS,
    WRITE_OPTIONS,
    InstancePlace,
    Options,
    cached_instance,
    check_options,
    read_instance,
    read_table_name,
    to_arrow,
)
from sleeper.spark.variants import variant_names, variants_to_text, without_variants
from sleeper.spark.versions import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from sleeper.statestore.transactions.add_files import NewFile

logger = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"
_NAME = "(DataFrame)"


@dataclass(frozen=True)
class PartWritten(WriterCommitMessage):
    """The files that a task wrote, and the id of its streaming query."""

    files: tuple[NewFile, ...]
    query_id: str | None = None


class SleeperWriter(DataSourceArrowWriter):
    """A batch write: one job, whose tasks run on executors and whose commit runs on the driver."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        check_options(options, WRITE_OPTIONS)
        self._place = InstancePlace.plan(read_instance(options))
        self.job_id = options.get("jobId") or f"spark-{uuid.uuid4().hex}"
        table = cached_instance(self._place.where).table(read_table_name(options))
        _check_mode(table, overwrite)
        self.is_done = was_ingested(table, self.job_id)
        self._begun = _begin(table, options, schema, self.job_id)
        self._variants = variant_names(schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartWritten:
        """Writes the rows of a task, unless the job was done before."""
        if self.is_done:
            return PartWritten(())
        return PartWritten(
            _write(self._place, self._begun, variants_to_text(iterator, self._variants))
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Adds all rows to the table in one transaction, or replaces those of a snapshot table."""
        with annotate_errors(self.job_id, "option jobId"):
            self.commit_parts(_parts(messages))

    def commit_parts(self, parts: Sequence[PartWritten]) -> IngestResult:
        """Commits the rows of all tasks, unless the job was done before."""
        if self.is_done:
            return IngestResult(self.job_id, 0, 0, None, done_before=True)
        files = [file for part in parts for file in part.files]
        return commit_ingest(cached_instance(self._place.where), self._begun, self.job_id, files)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Records the failure. A commit without a response may have added the rows."""
        logger.warning(
            "write aborted; repeating it with option jobId=%s adds no duplicate rows", self.job_id
        )
        record_failed_ingest(
            cached_instance(self._place.where),
            self._begun,
            self.job_id,
            "Spark aborted the write: see its log",
        )


class SleeperStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write: each micro-batch is a job named by the ids of the query and the batch."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        check_options(options, SINK_OPTIONS)
        self._place = InstancePlace.plan(read_instance(options))
        table = cached_instance(self._place.where).table(read_table_name(options))
        if _is_snapshot_table(table):
            raise InvalidRequestError(
                f"table {table.ref.name!r} is a snapshot table, which each write replaces, and a "
                "stream adds rows (expected a batch write with mode('overwrite'))"
            )
        _check_mode(table, overwrite)
        self._begun = _begin(table, options, schema)
        self._variants = variant_names(schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartWritten:
        """Writes the rows of a task of a micro-batch."""
        context = TaskContext.get()
        query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
        return PartWritten(
            _write(self._place, self._begun, variants_to_text(iterator, self._variants)), query_id
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Adds the micro-batch to the table, unless an earlier attempt did."""
        parts = _parts(messages)
        files = [file for part in parts for file in part.files]
        if files:
            commit_ingest(
                cached_instance(self._place.where), self._begun, _job_id(parts, batchId), files
            )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Records the failure. An earlier attempt may have added the micro-batch."""
        parts = _parts(messages)
        if parts:
            reason = "Spark aborted the micro-batch: see its log"
            record_failed_ingest(
                cached_instance(self._place.where), self._begun, _job_id(parts, batchId), reason
            )


def _is_snapshot_table(table: OpenTable) -> bool:
    with table.state.reading() as state:
        return state.is_snapshot_table


def _check_mode(table: OpenTable, overwrite: bool) -> None:
    """Raises InvalidRequestError unless the table's rows change in the mode of the write."""
    if _is_snapshot_table(table):
        if not overwrite:
            raise InvalidRequestError(
                f"table {table.ref.name!r} is a snapshot table, which each write replaces: use "
                "mode('overwrite') instead of mode('append')"
            )
    elif overwrite:
        raise InvalidRequestError(
            "tables support only appends, except for snapshot tables: use mode('append'), or for "
            "a stream outputMode('append'), instead of mode('overwrite')"
        )


def _begin(
    table: OpenTable, options: Options, schema: StructType, job_id: str | None = None
) -> BegunIngest:
    kinds = to_arrow(without_variants(schema))
    return begin_ingest(table, kinds, _NAME, options.get("opColumn"), job_id)


def _write(
    place: InstancePlace, begun: BegunIngest, batches: Iterator[pa.RecordBatch]
) -> tuple[NewFile, ...]:
    context = TaskContext.get()
    assert context is not None, "runs only in tasks of Spark"
    name = f"(partition {context.partitionId()} of the DataFrame)"
    return write_ingest_part(place.open(), begun, batches, name, context.cpus())


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[PartWritten]:
    return [message for message in messages if isinstance(message, PartWritten)]


def _job_id(parts: Sequence[PartWritten], batch_id: int) -> str:
    ids = {part.query_id for part in parts}
    if len(ids) != 1 or None in ids:
        raise UnavailableError(f"Spark did not report the query of micro-batch {batch_id}")
    return f"spark-{ids.pop()}-{batch_id}"
