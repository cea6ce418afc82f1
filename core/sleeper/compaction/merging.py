"""The merge of a compaction job's files, and which of them is to blame if it fails."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sleeper.datafiles.damage import find_damage
from sleeper.datafiles.location import DataRoot
from sleeper.datafiles.merge import MergeInput, MergeRequest, merge
from sleeper.datafiles.partitioned_write import FileStrategy, WriteTarget, write_sorted
from sleeper.datafiles.session import EngineSettings
from sleeper.datafiles.writer import FileSettings
from sleeper.errors import DataError, SleeperError, UnavailableError
from sleeper.files.data_file import DataFile
from sleeper.partitions.partition import Partition
from sleeper.schema.model import Schema


@dataclass(frozen=True, slots=True)
class MergeJob:
    """The rows of these files that lie in the partition, to be written as one file of it."""

    table_id: str
    schema: Schema
    partition: Partition
    inputs: tuple[DataFile, ...]
    run_start_ms: int

    def is_whole(self, file: DataFile) -> bool:
        """Whether every row of the file lies in the partition, so that none needs a look."""
        return self.partition.region.contains_bounds(file.smallest_key, file.largest_key)

    def request(self, root: DataRoot) -> MergeRequest:
        """What the one merge is asked for."""
        return MergeRequest(self.schema, tuple(self._input(root, file) for file in self.inputs))

    def _input(self, root: DataRoot, file: DataFile) -> MergeInput:
        regions = None if self.is_whole(file) else (self.partition.region,)
        return MergeInput(root.url_of(file.path), regions, file.bytes)


def merge_job(job: MergeJob, root: DataRoot, settings: EngineSettings) -> Iterator[pa.RecordBatch]:
    """The partition's rows of the job's files in key order, in bounded memory."""
    return merge(job.request(root), settings)


def write_output(
    batches: Iterator[pa.RecordBatch], job: MergeJob, root: DataRoot, settings: FileSettings
) -> DataFile | None:
    """Writes one file of the job's partition, a leaf or not; None if there is no row.

    UnavailableError if the disk refuses.
    """
    target = WriteTarget(
        root, job.table_id, job.schema, (job.partition,), job.run_start_ms, settings, threads=1
    )
    try:
        written = write_sorted(batches, target, FileStrategy.ONE_REFERENCE_PER_LEAF)
    except OSError as error:
        raise UnavailableError(f"cannot write in partition {job.partition.id}: {error}") from error
    return written[0].file if written else None


def damaged_input(
    job: MergeJob, root: DataRoot, settings: EngineSettings, error: SleeperError
) -> DataError:
    """The error with the file named that cannot be read or has not its rows."""
    found = find_damage(job.schema, job.inputs, root, settings)
    return found or DataError(f"partition {job.partition.id}: {error}")
