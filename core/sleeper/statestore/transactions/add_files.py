"""The commit of the files of an ingest or bulk import job."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from sleeper.clock import iso_time
from sleeper.files import DataFile, parse_run_start
from sleeper.json_codec import Member
from sleeper.partitions.partition import PartitionId
from sleeper.statestore.deletes import find_key_file
from sleeper.statestore.fold import Effect, Fold
from sleeper.statestore.json_fields import find_text_fault
from sleeper.statestore.rows import (
    PartitionRow,
    ancestor_keys,
    find_file,
    find_file_fault,
    find_partition,
    insert_file,
)
from sleeper.statestore.transactions.transaction import (
    APPLY,
    Subject,
    Transaction,
    Verdict,
    refused,
)


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file with its row count per partition. The counts add up to all its rows."""

    file: Annotated[DataFile, Member(flat=True)]
    rows_by_partition: Annotated[tuple[tuple[PartitionId, int], ...], Member("references")]


@dataclass(frozen=True, slots=True)
class AddFiles(Transaction):
    """Adds a job's files under the job's id. A job without rows has none.

    A partition that was split since the run began still takes its references, which are pushed
    down later. Files of an older schema are refused if a field of text has become JSON.
    `request` describes the input of the job: the same id with the same request is already done,
    even if this run wrote its own files. Without it the files are compared.
    """

    kind: ClassVar[str] = "add_files"
    subject: ClassVar[Subject] = Subject.ROWS
    id: str
    run_start_ms: Annotated[int, Member("run_start")]
    files: tuple[NewFile, ...]
    request: Annotated[str | None, Member(optional=True)] = None

    def validate(self, fold: Fold) -> Verdict:
        fault = self.find_table_fault(fold)
        fault = fault or find_run_fault(fold, self.run_start_ms, [n.file.path for n in self.files])
        if fault is None and len({n.file.path for n in self.files}) < len(self.files):
            fault = f"job {self.id} lists a file twice"
        for new in self.files:
            fault = fault or _find_new_file_fault(fold, new)
        return refused(fault) if fault else APPLY

    def find_table_fault(self, fold: Fold) -> str | None:
        """Returns why a table of this type cannot take the files; None if it can."""
        if fold.is_snapshot_table:
            return "the table is a snapshot table, to which no files are added: a load replaces all"
        return None

    def effect(self) -> Effect:
        files = [new.file for new in self.files]
        rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
        return Effect(self.id, len(files), rows, size)

    def apply(self, fold: Fold) -> None:
        number = fold.next_number
        for new in self.files:
            references = []
            for partition_id, rows in new.rows_by_partition:
                partition = find_partition(fold, partition_id)
                assert partition is not None
                references.append((partition.key, rows))
            insert_file(fold, new.file, (number, number), number, references)


def find_run_fault(fold: Fold, run_start_ms: int, paths: list[str]) -> str | None:
    """Returns why a run may not commit these new files; None if it may.

    The run start in a file's name counts too, because the orphan collector reads it.
    """
    starts = [s for s in (parse_run_start(p) for p in paths) if s is not None]
    oldest_ms = min([run_start_ms, *starts])
    if oldest_ms < fold.run_bar_ms:
        return (
            f"the run began at {iso_time(oldest_ms)}, and runs that began before "
            f"{iso_time(fold.run_bar_ms)} are barred: their files may be collected"
        )
    age_ms = fold.time_ms - oldest_ms
    if age_ms > fold.orphan_age_ms // 2:
        return (
            f"the run began {age_ms} ms ago, more than half the orphan age of "
            f"{fold.orphan_age_ms} ms: its files may be collected"
        )
    for path in paths:
        if find_file(fold, path) is not None or find_key_file(fold, path) is not None:
            return f"file {path} already exists (expected a new name for each run)"
    return None


def _find_new_file_fault(fold: Fold, new: NewFile) -> str | None:
    partitions: list[PartitionRow] = []
    for partition_id, rows in new.rows_by_partition:
        partition = find_partition(fold, partition_id)
        if partition is None:
            return f"file {new.file.path} refers to partition {partition_id}, which is unknown"
        if rows < 1:
            return f"file {new.file.path} has {rows} rows in partition {partition_id}: at least 1"
        partitions.append(partition)
    if not partitions:
        return f"file {new.file.path} has no reference"
    fault = find_text_fault(fold, new.file.schema_version)
    if fault:
        return f"file {new.file.path} has an older schema: {fault}"
    return (
        find_file_fault(new.file, partitions[0].region)
        or _find_rows_fault(new, partitions)
        or _find_overlap_fault(fold, new.file.path, partitions)
    )


def _find_rows_fault(new: NewFile, partitions: list[PartitionRow]) -> str | None:
    """Returns why rows lack a partition, so that no query would read them; None if none do."""
    file = new.file
    referenced = sum(rows for _, rows in new.rows_by_partition)
    if referenced != file.rows:
        return f"file {file.path} has {file.rows} rows, its references {referenced}"
    if len(partitions) == 1:
        inside = partitions[0].region.contains_bounds(file.smallest_key, file.largest_key)
    else:
        inside = all(
            p.region.overlaps_bounds(file.smallest_key, file.largest_key) for p in partitions
        )
    return None if inside else f"file {file.path} has keys outside of its partitions"


def _find_overlap_fault(fold: Fold, path: str, partitions: list[PartitionRow]) -> str | None:
    keys = {p.key for p in partitions}
    if len(keys) < len(partitions):
        return f"file {path} refers to a partition twice"
    if len(keys) > 1 and not all(p.is_leaf for p in partitions):
        for partition in partitions:
            if not keys.isdisjoint(ancestor_keys(fold, partition.key)):
                return f"file {path} refers to a partition and to one inside it"
    return None
