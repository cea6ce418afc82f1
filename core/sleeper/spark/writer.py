"""`df.write.format("sleeper")` and `writeStream`: executors write files, the driver commits.

Executors write files under fresh names and send their entries along. A task that is tried
again or twice at once leaves orphans: Spark hands on the entries of one attempt. The commit
is one transaction under the job's id, so that it counts once whoever repeats it.
"""

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
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
from sleeper.ingest.service import job_id_in_errors
from sleeper.spark import options as asked
from sleeper.spark.opened import opened
from sleeper.spark.types import arrow_of_spark
from sleeper.statestore.transactions.add_files import NewFile

logger = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"
_NAME = "(DataFrame)"


@dataclass(frozen=True)
class PartWritten(WriterCommitMessage):
    """What a task wrote, and for which streaming query if it was one."""

    files: tuple[NewFile, ...]
    query_id: str | None = None


class SleeperWriter(DataSourceArrowWriter):
    """One job. Made on the driver, sent to executors, and back on the driver for the commit."""

    def __init__(self, options: asked.Options, schema: StructType, overwrite: bool) -> None:
        asked.check_known(options, asked.WRITE_OPTIONS)
        self._where, self._begun = _begun(options, schema, overwrite)
        self._job_id = options.get("jobId") or f"spark-{uuid.uuid4().hex}"
        table = opened(self._where).table(asked.table_named(options))
        self._is_done = was_ingested(table, self._job_id)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartWritten:
        """Writes the rows of a task; a job that was done before has nothing to write."""
        if self._is_done:
            return PartWritten(())
        return PartWritten(_write(self._where, self._begun, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Puts all rows into the table at once."""
        if not self._is_done:
            files = [file for part in _parts(messages) for file in part.files]
            with job_id_in_errors(self._job_id, "option jobId"):
                commit_ingest(opened(self._where), self._begun, self._job_id, files)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing is in the table, unless the commit was not answered."""
        logger.warning(
            "write aborted; repeating it with option jobId=%s adds no row twice", self._job_id
        )
        record_failed_ingest(
            opened(self._where), self._begun, self._job_id, "Spark aborted it; its log says why"
        )


class SleeperStreamWriter(DataSourceStreamArrowWriter):
    """One streaming query; each micro-batch is a job by the query's id and the batch's."""

    def __init__(self, options: asked.Options, schema: StructType, overwrite: bool) -> None:
        asked.check_known(options, asked.SINK_OPTIONS)
        self._where, self._begun = _begun(options, schema, overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartWritten:
        """Writes the rows of a task of a micro-batch."""
        context = TaskContext.get()
        query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
        return PartWritten(_write(self._where, self._begun, iterator), query_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Puts the micro-batch into the table, if it is not there since an earlier try."""
        parts = _parts(messages)
        files = [file for part in parts for file in part.files]
        if files:
            commit_ingest(opened(self._where), self._begun, _job_of(parts, batchId), files)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing of the micro-batch is in the table, unless it was there before."""
        parts = _parts(messages)
        if parts:
            reason = "Spark aborted the micro-batch; its log says why"
            record_failed_ingest(opened(self._where), self._begun, _job_of(parts, batchId), reason)


def _begun(options: asked.Options, schema: StructType, overwrite: bool) -> tuple[str, BegunIngest]:
    if overwrite:
        raise InvalidRequestError(
            "rows are only ever added to a table: use mode('append'), or for a stream "
            "outputMode('append'); mode('overwrite') is refused"
        )
    where, name = asked.instance_named(options), asked.table_named(options)
    return where, begin_ingest(opened(where).table(name), arrow_of_spark(schema), _NAME)


def _write(
    where: str, begun: BegunIngest, batches: Iterator[pa.RecordBatch]
) -> tuple[NewFile, ...]:
    context = TaskContext.get()
    assert context is not None, "this runs in tasks of Spark"
    name = f"(partition {context.partitionId()} of the DataFrame)"
    return write_ingest_part(opened(where), begun, batches, name, context.cpus())


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[PartWritten]:
    return [message for message in messages if isinstance(message, PartWritten)]


def _job_of(parts: Sequence[PartWritten], batch_id: int) -> str:
    ids = {part.query_id for part in parts}
    if len(ids) != 1 or None in ids:
        raise UnavailableError(f"Spark does not say which query micro-batch {batch_id} is of")
    return f"spark-{ids.pop()}-{batch_id}"
