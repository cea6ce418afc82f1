"""The rows of a large request, which are in a file on local disk: an ingest of their own."""

from dataclasses import dataclass, replace
from pathlib import Path

from sleeper.datafiles.sources.arrow_stream import read_stream
from sleeper.datafiles.sources.budget import RowBudget, RowLimits, row_bytes_min
from sleeper.errors import InvalidRequestError, StateMovedOnError
from sleeper.ingest.request_results import (
    WriteResult,
    find_request,
    pack_content,
    repeat_result,
)
from sleeper.ingest.row_writer import check_not_snapshot
from sleeper.ingest.run import (
    IN_MEMORY_NAME,
    IngestResult,
    IngestTable,
    ingest_batches,
    ingest_files,
)
from sleeper.ingest.service import describe_rows_job, describe_run, ingest_table, trace_ingest
from sleeper.ingest.small_rows import REQUEST_OPTIONS, ROWS_NAME, ContentType
from sleeper.instance import OpenTable
from sleeper.jobs.event import JobKind
from sleeper.jobs.ingest_job import new_job_id
from sleeper.runs.task import record_task
from sleeper.runs.tracking import track_run
from sleeper.statestore.transactions.add_files import AddFiles
from sleeper.statestore.transactions.record_requests import RecordRequests, WriteRequest
from sleeper.statestore.transactions.transaction import Outcome

SUFFIXES = {
    ContentType.JSON_LINES: ".ndjson",
    ContentType.CSV: ".csv",
    ContentType.ARROW_STREAM: ".arrows",
}
"""The ends of the names of the files."""


def write_large(
    table: OpenTable,
    file: Path,
    kind: ContentType,
    digest: bytes,
    request_id: str | None,
    limits: RowLimits,
) -> WriteResult:
    """Adds the rows of a file, in bounded memory. Results and errors are as of a `RowWriter`."""
    target = ingest_table(table)
    check_not_snapshot(table)
    if request_id is not None:
        earlier = find_request(target.state, request_id)
        if earlier is not None:
            return repeat_result(request_id, digest, earlier)
    commit = _Commit(target, request_id, digest)
    try:
        result = _ingest(table, replace(target, commit=commit), file, kind, RowBudget(limits))
    except StateMovedOnError:
        # Another request of the id may have been committed meanwhile.
        earlier = None if request_id is None else find_request(target.state, request_id)
        if request_id is None or earlier is None:
            raise
        return repeat_result(request_id, digest, earlier)
    except InvalidRequestError as error:
        text = str(error).replace(str(file), ROWS_NAME).replace(IN_MEMORY_NAME, ROWS_NAME)
        raise type(error)(text) from error
    assert result.number is not None
    # Those of the result are none if the answer of the commit was lost.
    return WriteResult(request_id, commit.rows, result.number)


@dataclass(slots=True)
class _Commit:
    """Commits the files, together with the id of the request if there is one. Counts the rows."""

    target: IngestTable
    request_id: str | None
    digest: bytes
    rows: int = 0

    def __call__(self, files: AddFiles) -> Outcome:
        self.rows = sum(new.file.rows for new in files.files)
        state = self.target.state
        if self.request_id is None:
            return state.commit(files)[0]
        request = WriteRequest(self.request_id, pack_content(self.digest, self.rows))
        return state.commit_together(RecordRequests((request,)), files)[-1]


def _ingest(
    table: OpenTable, target: IngestTable, file: Path, kind: ContentType, budget: RowBudget
) -> IngestResult:
    job_id = new_job_id()
    request = describe_rows_job(job_id)

    def run() -> IngestResult:
        if kind is not ContentType.ARROW_STREAM:
            return ingest_files(
                target, job_id, [file], request, options=REQUEST_OPTIONS, budget=budget
            )
        batches = read_stream(file, ROWS_NAME, row_bytes_min(target.schema), budget)
        return ingest_batches(target, job_id, batches, request, budget=budget)

    with record_task(table.instance, JobKind.INGEST) as task, trace_ingest(table, job_id):
        tracker = track_run(table.instance, JobKind.INGEST, table.ref.id, job_id, task.id)
        result = tracker.execute(lambda _: run(), describe_run)
        task.add_job(result.rows, result.rows)
    return result
