"""A compaction's output takes the place of its inputs, in one partition."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from sleeper.files.data_file import DataFile
from sleeper.json_codec import Member
from sleeper.partitions.partition import PartitionId
from sleeper.statestore.file_rows import find_file, find_file_fault, insert_file, remove_reference
from sleeper.statestore.fold import Fold
from sleeper.statestore.outcome import APPLY, Verdict, refused
from sleeper.statestore.partition_rows import find_partition
from sleeper.statestore.transactions.add_files import find_run_fault
from sleeper.statestore.transactions.compaction_jobs import forget_job
from sleeper.statestore.transactions.transaction import Transaction


@dataclass(frozen=True, slots=True)
class CommitCompaction(Transaction):
    """Removes the partition's references to the inputs; `id` is the job's.

    Valid exactly while the job still holds its files, whether its lease has run out or
    not, and whether the partition was split meanwhile or not. `output` is None when no
    row was left.
    """

    kind: ClassVar[str] = "commit_compaction"
    id: str
    partition_id: Annotated[PartitionId, Member("partition")]
    inputs: tuple[str, ...]
    output: DataFile | None
    run_start_ms: Annotated[int, Member("run_start")]

    def validate(self, fold: Fold) -> Verdict:
        partition = find_partition(fold, self.partition_id)
        if partition is None:
            return refused(f"partition {self.partition_id} is unknown")
        if _held_paths(fold, self.id, partition.key) != set(self.inputs):
            return refused(
                f"compaction job {self.id} does not hold its files any more in partition "
                f"{self.partition_id}"
            )
        paths = [] if self.output is None else [self.output.path]
        fault = find_run_fault(fold, self.run_start_ms, paths)
        if fault is None and self.output is not None:
            fault = find_file_fault(self.output, partition.region)
            bounds = (self.output.smallest_key, self.output.largest_key)
            if fault is None and not partition.region.contains_bounds(*bounds):
                fault = f"file {self.output.path} has keys outside of its partition"
        return refused(fault) if fault else APPLY

    def apply(self, fold: Fold) -> None:
        partition = find_partition(fold, self.partition_id)
        assert partition is not None
        smallest, largest = [], []
        for path in self.inputs:
            file = find_file(fold, path)
            assert file is not None
            smallest.append(file.smallest_number)
            largest.append(file.largest_number)
            remove_reference(fold, partition.key, file.key)
        if self.output is not None:
            numbers = (min(smallest), max(largest))
            insert_file(fold, self.output, numbers, [(partition.key, self.output.rows)])
        forget_job(fold, self.id)


def _held_paths(fold: Fold, job_id: str, partition: int) -> set[str] | None:
    job = fold.row("SELECT key FROM jobs WHERE id = ? AND partition = ?", (job_id, partition))
    if job is None:
        return None
    held = fold.rows(
        "SELECT f.path FROM refs r JOIN files f ON f.key = r.file"
        " WHERE r.partition = ? AND r.job = ? AND r.removed IS NULL",
        (partition, job[0]),
    )
    return {path for (path,) in held}
