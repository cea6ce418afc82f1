"""Compaction jobs: the assignment of files under a lease, its release, and the commit."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from sleeper.files import DataFile
from sleeper.json_codec import Member
from sleeper.partitions.partition import PartitionId
from sleeper.statestore.fold import Effect, Fold
from sleeper.statestore.rows import (
    find_file,
    find_file_fault,
    find_partition,
    insert_file,
    remove_reference,
)
from sleeper.statestore.transactions.add_files import find_run_fault
from sleeper.statestore.transactions.transaction import (
    APPLY,
    Subject,
    Transaction,
    Verdict,
    already_done,
    refused,
)

JOB_KIND = "compaction_job"
"""Under this kind the ids of compaction jobs are remembered from their assignment on."""


@dataclass(frozen=True, slots=True)
class JobAssignment:
    """A compaction job's claim on a partition's references to these files, until it expires."""

    job_id: Annotated[str, Member("id")]
    partition_id: Annotated[PartitionId, Member("partition")]
    inputs: tuple[str, ...]
    lease_expiry_ms: Annotated[int, Member("lease_expiry")]


@dataclass(frozen=True, slots=True)
class AssignFiles(Transaction):
    """Assigns files to all of the jobs, or to none if one of them cannot have its files."""

    kind: ClassVar[str] = "assign_files"
    subject: ClassVar[Subject] = Subject.UPKEEP
    jobs: tuple[JobAssignment, ...]

    def validate(self, fold: Fold) -> Verdict:
        taken: set[tuple[str, str]] = set()
        ids: set[str] = set()
        for job in self.jobs:
            claims = [(job.partition_id, path) for path in job.inputs]
            if job.job_id in ids or fold.applied(job.job_id, JOB_KIND):
                return refused(f"compaction job id {job.job_id} was used before")
            if len(set(claims)) < len(claims) or not taken.isdisjoint(claims):
                return refused(
                    f"compaction job {job.job_id} has a file of another job of the transaction"
                )
            fault = _find_job_fault(fold, job)
            if fault:
                return refused(fault)
            taken.update(claims)
            ids.add(job.job_id)
        return APPLY

    def effect(self) -> Effect:
        return Effect(files=sum(len(job.inputs) for job in self.jobs))

    def apply(self, fold: Fold) -> None:
        for job in self.jobs:
            partition = find_partition(fold, job.partition_id)
            assert partition is not None
            key = fold.run(
                "INSERT INTO jobs (id, partition, lease_expiry, assigned, assigned_time)"
                " VALUES (?, ?, ?, ?, ?)",
                (job.job_id, partition.key, job.lease_expiry_ms, fold.next_number, fold.time_ms),
            ).lastrowid
            for path in job.inputs:
                file = find_file(fold, path)
                assert file is not None
                fold.run(
                    "UPDATE refs SET job = ? WHERE partition = ? AND file = ? AND removed IS NULL",
                    (key, partition.key, file.key),
                )
            fold.remember(job.job_id, JOB_KIND, b"")


@dataclass(frozen=True, slots=True)
class RenewLeases(Transaction):
    """Extends the leases of running jobs. It never shortens one."""

    kind: ClassVar[str] = "renew_leases"
    subject: ClassVar[Subject] = Subject.UPKEEP
    remembered: ClassVar[bool] = False
    job_ids: Annotated[tuple[str, ...], Member("jobs")]
    lease_expiry_ms: Annotated[int, Member("lease_expiry")]

    def validate(self, fold: Fold) -> Verdict:
        held = _lease_expiries(fold, self.job_ids)
        if not held:
            return refused(f"compaction job {', '.join(self.job_ids)} no longer holds its files")
        if min(held) >= self.lease_expiry_ms:
            return already_done("the leases do not expire earlier")
        return APPLY

    def apply(self, fold: Fold) -> None:
        for job_id in self.job_ids:
            fold.run(
                "UPDATE jobs SET lease_expiry = max(lease_expiry, ?) WHERE id = ?",
                (self.lease_expiry_ms, job_id),
            )


@dataclass(frozen=True, slots=True)
class ShortenLeases(Transaction):
    """Shortens the leases of jobs that failed in user code. It never extends one.

    The leases do not end at once, to limit retries. A retry before their end renews the lease and
    may succeed.
    """

    kind: ClassVar[str] = "shorten_leases"
    subject: ClassVar[Subject] = Subject.UPKEEP
    remembered: ClassVar[bool] = False
    job_ids: Annotated[tuple[str, ...], Member("jobs")]
    lease_expiry_ms: Annotated[int, Member("lease_expiry")]

    def validate(self, fold: Fold) -> Verdict:
        held = _lease_expiries(fold, self.job_ids)
        if not held or max(held) <= self.lease_expiry_ms:
            return already_done("the leases do not expire later")
        return APPLY

    def apply(self, fold: Fold) -> None:
        for job_id in self.job_ids:
            fold.run(
                "UPDATE jobs SET lease_expiry = min(lease_expiry, ?) WHERE id = ?",
                (self.lease_expiry_ms, job_id),
            )


@dataclass(frozen=True, slots=True)
class ReleaseJobs(Transaction):
    """Frees the files of jobs whose lease has expired, or of any job with `given_up`.

    A renewed job keeps its files. Ids of released jobs cannot be reused.
    """

    kind: ClassVar[str] = "release_jobs"
    subject: ClassVar[Subject] = Subject.UPKEEP
    remembered: ClassVar[bool] = False
    job_ids: Annotated[tuple[str, ...], Member("jobs")]
    given_up: bool = False

    def validate(self, fold: Fold) -> Verdict:
        held = _lease_expiries(fold, self.job_ids)
        if not held:
            return already_done("none of the jobs holds files")
        if not self.given_up and min(held) > fold.time_ms:
            return refused("the lease of every job that holds files is still running")
        return APPLY

    def apply(self, fold: Fold) -> None:
        for job_id in self.job_ids:
            expiry = _lease_expiry(fold, job_id)
            if expiry is not None and (self.given_up or expiry <= fold.time_ms):
                forget_job(fold, job_id)


def forget_job(fold: Fold, job_id: str) -> None:
    """Removes the job and frees its files."""
    key, partition = fold.row("SELECT key, partition FROM jobs WHERE id = ?", (job_id,))
    fold.run("UPDATE refs SET job = NULL WHERE partition = ? AND job = ?", (partition, key))
    fold.run("DELETE FROM jobs WHERE key = ?", (key,))


def _lease_expiry(fold: Fold, job_id: str) -> int | None:
    row = fold.row("SELECT lease_expiry FROM jobs WHERE id = ?", (job_id,))
    return row and int(row[0])


def _lease_expiries(fold: Fold, job_ids: tuple[str, ...]) -> list[int]:
    """Returns the expiries of the jobs that hold files."""
    return [e for j in job_ids if (e := _lease_expiry(fold, j)) is not None]


def _find_job_fault(fold: Fold, job: JobAssignment) -> str | None:
    partition = find_partition(fold, job.partition_id)
    if partition is None:
        return f"compaction job {job.job_id}: partition {job.partition_id} is unknown"
    if not job.inputs:
        return f"compaction job {job.job_id} has no files"
    if job.lease_expiry_ms <= fold.time_ms:
        return f"compaction job {job.job_id}: its lease would have expired already"
    for path in job.inputs:
        file = find_file(fold, path)
        reference = file and fold.row(
            "SELECT job FROM refs WHERE partition = ? AND file = ? AND removed IS NULL",
            (partition.key, file.key),
        )
        if not reference:
            return (
                f"compaction job {job.job_id}: partition {job.partition_id} has no reference to "
                f"file {path}"
            )
        if reference[0] is not None:
            return f"compaction job {job.job_id}: file {path} is assigned to another job"
    return None


@dataclass(frozen=True, slots=True)
class CommitCompaction(Transaction):
    """Replaces the inputs with the output in one partition; `id` is the job's.

    Valid exactly while the job holds its files, even if its lease has expired or the partition
    was split meanwhile. `output` is None if no row remains.
    """

    kind: ClassVar[str] = "commit_compaction"
    subject: ClassVar[Subject] = Subject.UPKEEP
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
                f"compaction job {self.id} no longer holds its files in partition "
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

    def effect(self) -> Effect:
        if self.output is None:
            return Effect(self.id, 0, 0, 0)
        return Effect(self.id, 1, self.output.rows, self.output.bytes)

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
            (assigned,) = fold.row("SELECT assigned FROM jobs WHERE id = ?", (self.id,))
            references = [(partition.key, self.output.rows)]
            insert_file(fold, self.output, numbers, assigned, references)
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
