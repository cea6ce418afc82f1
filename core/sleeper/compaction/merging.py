"""The merge of a compaction job's files, and which of them is to blame if it fails."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sleeper.datafiles.damage import find_damage
from sleeper.datafiles.extract_files import Extract
from sleeper.datafiles.fetching import fetched
from sleeper.datafiles.location import DataRoot
from sleeper.datafiles.merge import MergeInput, MergeRequest
from sleeper.datafiles.merge_write import write_merge
from sleeper.datafiles.partitioned_write import WriteTarget
from sleeper.datafiles.processing_frame import ProcessingStep
from sleeper.datafiles.session import EngineSettings
from sleeper.datafiles.writer import FileSettings
from sleeper.errors import DataError, SleeperError, UnavailableError
from sleeper.files.data_file import DataFile
from sleeper.partitions.partition import Partition
from sleeper.partitions.region import Region
from sleeper.schema.model import Schema


@dataclass(frozen=True, slots=True)
class MergeJob:
    """The rows of these files that lie in the partition, to be written as one file of it.

    They are filtered and aggregated as the table says. The time is that at which the job got
    its files: no version that can see the output is older, so that whatever was too old then
    is so for all of them.
    """

    table_id: str
    schema: Schema
    partition: Partition
    inputs: tuple[DataFile, ...]
    run_start_ms: int
    step: ProcessingStep

    def is_whole(self, file: DataFile) -> bool:
        """Whether every row of the file lies in the partition, so that none needs a look."""
        return self.partition.region.contains_bounds(file.smallest_key, file.largest_key)

    def wanted(self) -> list[tuple[DataFile, tuple[Region, ...] | None]]:
        """The files, and the regions whose rows are wanted of each; None for every row."""
        region = (self.partition.region,)
        return [(file, None if self.is_whole(file) else region) for file in self.inputs]

    def request(self, root: DataRoot, extracts: Mapping[str, Extract]) -> MergeRequest:
        """What the one merge is asked for. Extracts are read in their files' place."""
        inputs = []
        for file, regions in self.wanted():
            extract = extracts.get(file.path)
            if extract is None:
                inputs.append(MergeInput(root.url_of(file.path), regions, file.bytes))
            else:
                inputs.append(MergeInput(str(extract.path), regions, extract.bytes))
        return MergeRequest(self.schema, tuple(inputs), steps=(self.step,))


def write_output(
    job: MergeJob,
    root: DataRoot,
    engine: EngineSettings,
    settings: FileSettings,
    on_rows: Callable[[int], None] = lambda _: None,
) -> DataFile | None:
    """Writes the partition's rows of the job's files as one file of it, in bounded memory.

    The partition may be a leaf or not. None if there is no row. `on_rows` hears of rows, and
    stops the merge by raising. UnavailableError if the disk refuses.
    """
    target = WriteTarget(
        root, job.table_id, job.schema, (job.partition,), job.run_start_ms, settings, threads=1
    )
    try:
        with fetched(root, job.schema, job.wanted(), engine.spill_folder) as extracts:
            return write_merge(job.request(root, extracts), engine, target, on_rows)
    except OSError as error:
        raise UnavailableError(f"cannot write in partition {job.partition.id}: {error}") from error


def damaged_input(
    job: MergeJob, root: DataRoot, settings: EngineSettings, error: SleeperError
) -> DataError:
    """The error with the file named that cannot be read or has not its rows."""
    found = find_damage(job.schema, job.inputs, root, settings)
    return found or DataError(f"partition {job.partition.id}: {error}")
