"""The order of the files in the batcher's jobs.

In a table of latest rows, the row of the later file counts. The log does not tell the order,
because the request of a job is the same for any.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from simulation.model.journal import Journal
from sleeper.ingest_batcher import plan
from sleeper.ingest_batcher.plan import BatchJob
from sleeper.tables import TableId


@contextmanager
def observed_batches(journal: Journal) -> Iterator[None]:
    """Lets the journal know the files of each job before it is sent."""

    def observed(table_id: TableId, job_id: str, files: tuple[str, ...]) -> BatchJob:
        journal.batches[job_id] = files
        return BatchJob(table_id, job_id, files)

    with patch.object(plan, "BatchJob", observed):
        yield
