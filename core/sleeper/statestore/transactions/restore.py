"""Changes that give rows back or take them away: a restored version, an undone job, an empty table.

They change references and deletes of rows at a new number, and no file. The partitions stay as they
are, so a reference may return to a partition that was split since, to be pushed down. The
processing and the schema stay too.
"""

from dataclasses import dataclass
from functools import cache
from typing import Annotated, ClassVar

from sleeper.json_codec import Member
from sleeper.schema.model import schema_from_json
from sleeper.statestore.fold import Effect, Fold
from sleeper.statestore.json_fields import find_text_fault
from sleeper.statestore.rows import remove_reference
from sleeper.statestore.snapshot_versions import (
    find_expired_fault,
    find_snapshot_fault,
    publish_content,
)
from sleeper.statestore.transactions.add_files import AddFiles
from sleeper.statestore.transactions.compaction_jobs import CommitCompaction, forget_job
from sleeper.statestore.transactions.snapshot_loads import PublishSnapshot
from sleeper.statestore.transactions.transaction import (
    APPLY,
    Subject,
    Transaction,
    Verdict,
    already_done,
    refused,
)

_EMPTY = 0
"""The version before the first transaction, which has no rows."""


@dataclass(frozen=True, slots=True)
class RestoreVersion(Transaction):
    """Makes the rows of an older version those of the newest. `id` is the restore's.

    A version is refused if a field of text has become JSON since.
    Compaction jobs lose their files, because they would write rows of the newest version.
    """

    kind: ClassVar[str] = "restore_version"
    subject: ClassVar[Subject] = Subject.ROWS
    version: Annotated[int, Member("to")]

    def validate(self, fold: Fold) -> Verdict:
        oldest = max(fold.horizon, 1)
        if self.version < oldest:
            return refused(
                f"version {self.version} is no longer readable: the oldest readable version is "
                f"{oldest}"
            )
        if self.version > fold.number:
            return refused(
                f"version {self.version} does not exist yet: the newest is {fold.number}"
            )
        fault = find_expired_fault(fold, self.version) or find_snapshot_fault(fold, self.version)
        if fault:
            return refused(fault)
        if self.version == fold.number:
            return already_done(f"version {self.version} is the newest")
        fault = find_text_fault(fold, self.version)
        return refused(f"version {self.version} is of an older schema: {fault}") if fault else APPLY

    def effect(self) -> Effect:
        return Effect(self.id)

    def apply(self, fold: Fold) -> None:
        _replace_content(fold, self.version)
        publish_content(fold, self.id)


@dataclass(frozen=True, slots=True)
class ReinitialiseTable(Transaction):
    """Removes all rows. Partitions, schema and processing stay. `id` is the request's."""

    kind: ClassVar[str] = "reinitialise_table"
    subject: ClassVar[Subject] = Subject.ROWS

    def validate(self, fold: Fold) -> Verdict:  # noqa: ARG002 (any state will do)
        return APPLY

    def effect(self) -> Effect:
        return Effect(self.id)

    def apply(self, fold: Fold) -> None:
        _replace_content(fold, _EMPTY)
        publish_content(fold, self.id)


@dataclass(frozen=True, slots=True)
class UndoJob(Transaction):
    """Takes back what one ingest or import added. The job's id stays used.

    Refused if a compaction has merged rows of the job with others into a file that is read.
    """

    kind: ClassVar[str] = "undo_job"
    subject: ClassVar[Subject] = Subject.ROWS
    job_id: Annotated[str, Member("job")]

    def validate(self, fold: Fold) -> Verdict:
        if fold.is_snapshot_table:
            return refused("the table is a snapshot table, whose loads replace all rows")
        job = fold.applied(self.job_id, AddFiles.kind)
        if job is None:
            return refused(
                f"no ingest or import has the id {self.job_id} (ids are kept for 30 days)"
            )
        result = _trace_job(fold, job.number)
        if result.is_merged:
            return refused(
                f"a compaction has merged rows of job {self.job_id}, transaction {job.number}, "
                "with others"
            )
        if not result.is_complete:
            return refused(
                f"files of job {self.job_id}, transaction {job.number}, were merged or taken back, "
                "and collected"
            )
        if not any(_current_references(fold, file) for file in result.files):
            return already_done(f"no row of job {self.job_id} is in the table")
        return APPLY

    def effect(self) -> Effect:
        return Effect(self.job_id)

    def apply(self, fold: Fold) -> None:
        job = fold.applied(self.job_id, AddFiles.kind)
        assert job is not None
        for file in _trace_job(fold, job.number).files:
            for partition, compaction in _current_references(fold, file):
                if compaction is not None and fold.row(_FIND_COMPACTION, (compaction,)):
                    forget_job(fold, compaction)
                remove_reference(fold, partition, file)
        fold.run("DELETE FROM unsplittable")


REPLACING_KINDS = frozenset(
    {RestoreVersion.kind, ReinitialiseTable.kind, UndoJob.kind, PublishSnapshot.kind}
)
"""The names in the log of transactions that replace the rows of the table."""

_FIND_COMPACTION = "SELECT 1 FROM jobs WHERE id = ?"


@dataclass(slots=True)
class _Trace:
    """The rows of a job: keys of the files that have no others, and whether files with others are
    read. It is complete if all files that ever had rows of the job are known.
    """

    files: list[int]
    is_merged: bool
    is_complete: bool


def _trace_job(fold: Fold, number: int) -> _Trace:
    """Returns the files with rows of the ingest or import of that number."""
    files = _added_files(fold, number)
    recorded = fold.row("SELECT files FROM history WHERE number = ?", (number,))
    result = _Trace(list(files), False, recorded is not None and recorded[0] == len(files))
    seen, waiting = set(files), list(files)
    while waiting:
        for partition, removed, kind, outputs in fold.rows(_REMOVALS, {"file": waiting.pop()}):
            if kind in REPLACING_KINDS:
                continue
            if kind == CommitCompaction.kind and outputs == 0:
                result.is_merged |= _has_hidden_others(fold, partition, removed, result.files)
                continue
            output = fold.row(_FIND_OUTPUT, (partition, removed))
            if output is None or kind is None:
                result.is_complete = False
            elif output[0] not in seen:
                file, is_of_job, is_read = output
                seen.add(file)
                waiting.append(file)
                if is_of_job:
                    result.files.append(file)
                elif is_read:
                    result.is_merged = True
    return result


def _has_hidden_others(fold: Fold, partition: int, removed: int, files: list[int]) -> bool:
    """Returns whether a compaction without output removed rows of other jobs because of the job's.

    It does in a table of latest rows, where a row with the operation *delete* hides an older one.
    """
    (schema,) = fold.row("SELECT json FROM schema_versions ORDER BY version DESC LIMIT 1")
    if schema_from_json(schema).latest is None:
        return False
    inputs = fold.rows(
        "SELECT file FROM refs WHERE partition = ? AND removed = ?", (partition, removed)
    )
    return any(file not in files for (file,) in inputs)


def _added_files(fold: Fold, number: int) -> list[int]:
    """Returns the keys of the files that the ingest of that number added and that are kept."""
    rows = fold.rows(
        "SELECT key FROM files WHERE added = ? AND smallest_number = added"
        " AND collecting IS NULL ORDER BY key",
        (number,),
    )
    return [key for (key,) in rows]


# A reference that was removed at a number was pushed down if its file has another that was added
# at the number. Otherwise a compaction, whose output is the partition's file that was added at the
# number, or a transaction of this module removed it.
_REMOVALS = (
    "SELECT r.partition, r.removed, h.kind, h.files FROM refs r"
    " LEFT JOIN history h ON h.number = r.removed"
    " WHERE r.file = :file AND r.removed IS NOT NULL AND NOT EXISTS ("
    "SELECT 1 FROM refs m WHERE m.file = :file AND m.added = r.removed)"
    " ORDER BY r.removed, r.partition"
)
_FIND_OUTPUT = (
    "SELECT f.key, f.smallest_number = f.largest_number, f.references_left > 0 FROM refs o"
    " CROSS JOIN files f ON f.key = o.file WHERE o.partition = ? AND o.added = ?"
)


def _current_references(fold: Fold, file: int) -> list[tuple[int, str | None]]:
    """Returns the partitions that refer to the file, with the compaction job that holds it."""
    return fold.rows(
        "SELECT r.partition, j.id FROM refs r LEFT JOIN jobs j ON j.key = r.job"
        " WHERE r.file = ? AND r.removed IS NULL ORDER BY r.partition",
        (file,),
    )


def _replace_content(fold: Fold, version: int) -> None:
    """Makes the references and deletes of the version those of the transaction being applied."""
    numbers = {"at": version, "now": fold.next_number, "time": fold.time_ms}
    for (job_id,) in fold.rows("SELECT id FROM jobs"):
        forget_job(fold, job_id)
    fold.run(_REMOVE_REFERENCES, numbers)
    fold.run(_RETURN_REFERENCES, numbers)
    fold.run(_COUNT_REFERENCES, numbers)
    fold.run(_END_DELETES, numbers)
    fold.run(_return_deletes_sql(fold), numbers)
    fold.run("DELETE FROM unsplittable")


_REMOVE_REFERENCES = (
    "UPDATE refs SET removed = :now WHERE removed IS NULL AND added > :at AND NOT EXISTS ("
    "SELECT 1 FROM refs o WHERE o.partition = refs.partition AND o.file = refs.file"
    " AND o.added <= :at AND o.removed > :at)"
)
_RETURN_REFERENCES = (
    "INSERT INTO refs (partition, file, rows, added)"
    " SELECT partition, file, rows, :now FROM refs r"
    " WHERE r.added <= :at AND r.removed > :at AND NOT EXISTS ("
    "SELECT 1 FROM refs o WHERE o.partition = r.partition AND o.file = r.file"
    " AND o.removed IS NULL)"
)
_COUNT_REFERENCES = (
    "UPDATE files SET references_left = held.count,"
    " unreferenced = CASE held.count WHEN 0 THEN :now END,"
    " unreferenced_time = CASE held.count WHEN 0 THEN :time END FROM ("
    "SELECT file, count(*) FILTER (WHERE removed IS NULL) AS count FROM refs"
    " GROUP BY file HAVING sum(added = :now OR removed = :now) > 0) held"
    " WHERE files.key = held.file"
)
_END_DELETES = "UPDATE deletes SET removed = :now WHERE removed IS NULL AND since > :at"


def _return_deletes_sql(fold: Fold) -> str:
    columns = [
        name
        for (name,) in fold.rows("SELECT name FROM pragma_table_info('deletes')")
        if name not in ("key", "since", "removed")
    ]
    return _copy_deletes_sql(", ".join(columns))


@cache
def _copy_deletes_sql(columns: str) -> str:
    return (
        f"INSERT INTO deletes (since, {columns}) SELECT :now, {columns} FROM deletes"
        " WHERE since <= :at AND removed > :at ORDER BY key"
    )
