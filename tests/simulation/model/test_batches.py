"""The rows of a job of the batcher, in the order of its files."""

from pathlib import Path

from simulation.model.batches import observed_batches
from simulation.model.journal import Journal
from simulation.model.submitted import stored_rows
from sleeper.ingest_batcher.plan import BatchJob, BatchLimits, create_batches
from sleeper.jobs.file_requests import FileRequest
from sleeper.jobs.ingest_job import IngestJob
from sleeper.local.file_requests import LocalFileRequests
from sleeper.local.folder import create_instance_folder
from sleeper.schema.model import schema_from_json
from sleeper.statestore.transactions.add_files import AddFiles
from sleeper.tables import TableId

SCHEMA = schema_from_json('{"rowKeyFields":[{"name":"key","type":"IntType"}]}')
TABLE = TableId("0000000a")
ALWAYS_DUE = BatchLimits(0, 1_000, 1, 10, 0)


def test_the_files_of_a_batch_are_in_the_order_of_their_requests(tmp_path: Path) -> None:
    folder = create_instance_folder(tmp_path / "here", "me")
    requests = LocalFileRequests(folder.database)
    journal = Journal(files={"z": [{"key": 1}], "a": [{"key": 2}]})
    for time_ms, name in enumerate(journal.files):
        requests.add([FileRequest(TABLE, name, f"folder/{name}", 1, time_ms)])
    jobs: list[BatchJob] = []
    with observed_batches(journal):
        create_batches(TABLE, requests, ALWAYS_DUE, jobs.append, lambda: 10)
    folder.close()
    (job,) = jobs
    request = IngestJob(job.id, job.files, table_id=TABLE).request
    rows = stored_rows(journal, AddFiles(job.id, 0, (), request), (), SCHEMA)
    assert [row.values for row in rows] == [(1,), (2,)]
