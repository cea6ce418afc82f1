"""Loads of snapshot tables: each replaces all rows with a new version. Versions expire."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from sleeper.json_codec import Member
from sleeper.statestore.fold import Effect, Fold
from sleeper.statestore.snapshot_versions import (
    end_newest,
    publish_version,
    remove_references,
)
from sleeper.statestore.transactions.add_files import AddFiles
from sleeper.statestore.transactions.transaction import (
    APPLY,
    Subject,
    Transaction,
    Verdict,
    already_done,
    refused,
)

_NO_SNAPSHOT_TABLE = "the table is not a snapshot table, so no load replaces its rows"


@dataclass(frozen=True, slots=True)
class BeginLoad(Transaction):
    """Changes nothing. Its number is the place of a load in the order of loads.

    The id is that of the job, also in `job`, so that every run of the job has the place of the
    first: a retry would otherwise replace a newer load with older rows.
    """

    kind: ClassVar[str] = "begin_load"
    subject: ClassVar[Subject] = Subject.UPKEEP
    job: Annotated[str | None, Member(optional=True)] = None

    def validate(self, fold: Fold) -> Verdict:
        return APPLY if fold.is_snapshot_table else refused(_NO_SNAPSHOT_TABLE)

    def effect(self) -> Effect:
        return Effect(self.job)

    def apply(self, fold: Fold) -> None:
        """Changes nothing."""


@dataclass(frozen=True, slots=True)
class PublishSnapshot(AddFiles):
    """Replaces all rows of a snapshot table with a job's files, as a new version.

    `begun` is the number of the load's `BeginLoad`. It never replaces a version whose load began
    later. Compaction jobs lose their files.
    """

    kind: ClassVar[str] = "publish_snapshot"
    subject: ClassVar[Subject] = Subject.ROWS
    begun: int = 0

    def find_table_fault(self, fold: Fold) -> str | None:
        if not fold.is_snapshot_table:
            return _NO_SNAPSHOT_TABLE
        if not 0 < self.begun <= fold.number:
            return f"the load began at {self.begun} (expected a number from 1 to {fold.number})"
        later = fold.row(
            "SELECT number, begun, job FROM snapshot_versions WHERE begun > ?"
            " ORDER BY number DESC LIMIT 1",
            (self.begun,),
        )
        if later:
            number, begun, job = later
            return (
                f"load {self.id} began at transaction {self.begun}, and load {job}, which began "
                f"later, at {begun}, has published version {number}"
            )
        return None

    def apply(self, fold: Fold) -> None:
        remove_references(fold)
        AddFiles.apply(self, fold)
        effect = self.effect()
        files, rows, size = effect.files or 0, effect.rows or 0, effect.bytes or 0
        publish_version(fold, self.begun, self.id, files, rows, size)


@dataclass(frozen=True, slots=True)
class ExpireSnapshots(Transaction):
    """Makes versions of a snapshot table unreadable, except for those that a hold keeps.

    If the newest is among them, the table has no rows until the next load.
    """

    kind: ClassVar[str] = "expire_snapshots"
    subject: ClassVar[Subject] = Subject.TABLE
    remembered: ClassVar[bool] = False
    versions: Annotated[tuple[int, ...], Member("expires")]

    def validate(self, fold: Fold) -> Verdict:
        if not fold.is_snapshot_table:
            return refused(_NO_SNAPSHOT_TABLE)
        left = 0
        for number in self.versions:
            row = fold.row(
                "SELECT ended, expired FROM snapshot_versions WHERE number = ?", (number,)
            )
            if row is None or row[1] is not None:
                continue  # expired before, and perhaps forgotten
            hold = fold.row(
                "SELECT id, owner, version FROM holds WHERE expiry > ? AND version >= ?"
                " AND (? IS NULL OR version < ?) ORDER BY version LIMIT 1",
                (fold.time_ms, number, row[0], row[0]),
            )
            if hold:
                return refused(
                    f"hold {hold[0]} of {hold[1]} at version {hold[2]} keeps version {number}"
                )
            left += 1
        return APPLY if left else already_done("the versions had expired")

    def apply(self, fold: Fold) -> None:
        for number in self.versions:
            row = fold.row(
                "SELECT ended FROM snapshot_versions WHERE number = ? AND expired IS NULL",
                (number,),
            )
            if row is None:
                continue
            if row[0] is None:
                remove_references(fold)
                end_newest(fold)
            fold.run(
                "UPDATE snapshot_versions SET expired = ?, expired_time = ? WHERE number = ?",
                (fold.next_number, fold.time_ms, number),
            )
