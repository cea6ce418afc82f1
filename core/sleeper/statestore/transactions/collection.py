"""Garbage collection: the horizon, two steps around the deletion of objects, a bar for orphans."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from sleeper.json_codec import Member
from sleeper.statestore.deletes import find_key_file, forget_deletes
from sleeper.statestore.fold import Effect, Fold
from sleeper.statestore.fold_tables import path_hash
from sleeper.statestore.rows import find_file
from sleeper.statestore.snapshot_versions import forget_versions, is_in_expired
from sleeper.statestore.transactions.transaction import (
    APPLY,
    Subject,
    Transaction,
    Verdict,
    already_done,
    refused,
)


def find_horizon_fault(
    fold: Fold, horizon: int, cursors: tuple[tuple[str, int], ...], passed: tuple[str, ...]
) -> str | None:
    """Returns why the horizon cannot be raised; None if it can.

    `cursors` are the followers' positions by cursor key, as the collector read them; they only move
    forward, so having read them earlier is safe. `passed` are the cursor keys of followers that
    keep no changes, because they have not read for too long.
    """
    if horizon > fold.number:
        return f"horizon {horizon} is beyond the newest version {fold.number}"
    hold = fold.row(
        "SELECT id, owner, version FROM holds WHERE expiry > ? AND version < ?"
        " ORDER BY version LIMIT 1",
        (fold.time_ms, horizon),
    )
    if hold:
        return f"hold {hold[0]} of {hold[1]} keeps version {hold[2]}, below {horizon}"
    if fold.is_snapshot_table:
        return None  # its followers skip versions that expired
    positions = dict(cursors)
    for name, cursor_key, start in fold.rows("SELECT name, cursor_key, start FROM followers"):
        position = max(start, positions.get(cursor_key, 0))
        if position < horizon and cursor_key not in passed:
            return f"follower {name} is at version {position}, below {horizon}"
    return None


@dataclass(frozen=True, slots=True)
class RaiseHorizon(Transaction):
    """Lets no read begin at a version below the horizon, except at one that a hold keeps.

    A collector commits it before it reads the holds for the last time. See `find_horizon_fault`.
    """

    kind: ClassVar[str] = "raise_horizon"
    subject: ClassVar[Subject] = Subject.UPKEEP
    remembered: ClassVar[bool] = False
    horizon: int
    cursors: tuple[tuple[str, int], ...] = ()
    passed: Annotated[tuple[str, ...], Member(optional=True)] = ()

    def validate(self, fold: Fold) -> Verdict:
        if self.horizon <= fold.horizon:
            return already_done(f"the horizon is {fold.horizon}")
        fault = find_horizon_fault(fold, self.horizon, self.cursors, self.passed)
        return refused(fault) if fault else APPLY

    def apply(self, fold: Fold) -> None:
        fold.horizon = self.horizon


@dataclass(frozen=True, slots=True)
class CollectFiles(Transaction):
    """Step one: removes files without references, and forgets versions below the horizon.

    `horizon` is at least the number at which the last of them lost its last reference, except for
    files that only expired versions of a snapshot table need, and no hold keeps a version below.
    See `find_horizon_fault` for the other members. After this entry the
    objects may be deleted; a file stays *collecting* until step two, so that a collector that
    dies in between is followed by one that deletes again. The key files of deletes that no
    readable version needs any more become *collecting* too. Without paths it only forgets, such as
    deletes that no file needs.
    """

    kind: ClassVar[str] = "collect_files"
    subject: ClassVar[Subject] = Subject.UPKEEP
    remembered: ClassVar[bool] = False
    paths: tuple[str, ...]
    horizon: int
    cursors: tuple[tuple[str, int], ...] = ()
    passed: Annotated[tuple[str, ...], Member(optional=True)] = ()

    def validate(self, fold: Fold) -> Verdict:
        live = 0
        for path in self.paths:
            file = find_file(fold, path)
            if file is None or file.collecting is not None:
                continue
            if file.unreferenced is None:
                return refused(f"file {path} is still referenced")
            if pin := fold.row("SELECT clone FROM pins WHERE file = ?", (path_hash(path),)):
                return refused(f"file {path} is needed by clone {pin[0]}")
            if file.unreferenced > self.horizon and not is_in_expired(fold, file.key):
                return refused(
                    f"file {path} is readable below version {file.unreferenced} (expected a "
                    f"horizon of at least that version, not {self.horizon})"
                )
            live += 1
        if not live and (self.paths or self.horizon <= fold.forgotten_below):
            return already_done("the files were already collected")
        fault = find_horizon_fault(fold, self.horizon, self.cursors, self.passed)
        return refused(fault) if fault else APPLY

    def effect(self) -> Effect:
        return Effect(files=len(self.paths))

    def apply(self, fold: Fold) -> None:
        # An entry of an older version raises the horizon too.
        fold.horizon = max(fold.horizon, self.horizon)
        forgotten_before = fold.forgotten_below
        fold.forgotten_below = max(forgotten_before, self.horizon)
        fold.run("DELETE FROM holds WHERE expiry <= ?", (fold.time_ms,))
        fold.run("DELETE FROM entry_times WHERE last < ?", (fold.forgotten_below,))
        collected = []
        for path in self.paths:
            file = find_file(fold, path)
            if file is not None and file.collecting is None:
                fold.run(
                    "UPDATE files SET collecting = ? WHERE key = ?", (fold.next_number, file.key)
                )
                # no version that anyone may read has them
                fold.run("DELETE FROM refs WHERE file = ?", (file.key,))
                collected.append(file.key)
        forget_versions(fold)
        forget_deletes(fold, forgotten_before, collected)


@dataclass(frozen=True, slots=True)
class FilesCollected(Transaction):
    """Step two: removes the rows of files and key files whose objects are deleted."""

    kind: ClassVar[str] = "files_collected"
    subject: ClassVar[Subject] = Subject.UPKEEP
    remembered: ClassVar[bool] = False
    paths: tuple[str, ...]

    def validate(self, fold: Fold) -> Verdict:
        files = [find_file(fold, path) or find_key_file(fold, path) for path in self.paths]
        for path, file in zip(self.paths, files, strict=True):
            if file is not None and file.collecting is None:
                return refused(f"file {path} is not being collected")
        return APPLY if any(files) else already_done("the files were already removed")

    def effect(self) -> Effect:
        return Effect(files=len(self.paths))

    def apply(self, fold: Fold) -> None:
        for path in self.paths:
            file, key_file = find_file(fold, path), find_key_file(fold, path)
            if file is not None:
                fold.run("DELETE FROM files WHERE key = ?", (file.key,))
            if key_file is not None:
                fold.run("DELETE FROM key_files WHERE key = ?", (key_file.key,))


@dataclass(frozen=True, slots=True)
class BarRuns(Transaction):
    """Refuses every later commit of a run that began before `before_ms`.

    The orphan collector commits it before it deletes files of such runs. Whether a file can
    still be committed then depends on the log alone, and not on the clocks of the collector
    and of the run. The bar only rises.
    """

    kind: ClassVar[str] = "bar_runs"
    subject: ClassVar[Subject] = Subject.UPKEEP
    remembered: ClassVar[bool] = False
    before_ms: Annotated[int, Member("before")]

    def validate(self, fold: Fold) -> Verdict:
        if self.before_ms <= fold.run_bar_ms:
            return already_done(f"runs that began before {fold.run_bar_ms} are already barred")
        newest_ms = fold.time_ms - fold.orphan_age_ms
        if self.before_ms > newest_ms:
            return refused(
                f"runs before {self.before_ms} cannot be barred: that is within the orphan age "
                f"(expected at most {newest_ms})"
            )
        return APPLY

    def apply(self, fold: Fold) -> None:
        fold.run_bar_ms = self.before_ms
