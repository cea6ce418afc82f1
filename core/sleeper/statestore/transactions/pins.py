"""Pins: files of a table that clones of it still need (design note 13).

The table that owns a file, whose id begins the file's path, holds a pin per file and clone. A
pinned file is not collected, even if the owner no longer refers to it.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from sleeper.json_codec import Member
from sleeper.statestore.deletes import collect_key_files, find_key_file
from sleeper.statestore.fold import Effect, Fold
from sleeper.statestore.fold_tables import path_hash
from sleeper.statestore.rows import find_file
from sleeper.statestore.transactions.transaction import (
    APPLY,
    Subject,
    Transaction,
    Verdict,
    already_done,
    refused,
)


@dataclass(frozen=True, slots=True)
class PinFiles(Transaction):
    """Keeps data files and key files for a clone. Refused if one is gone or being collected."""

    kind: ClassVar[str] = "pin_files"
    subject: ClassVar[Subject] = Subject.UPKEEP
    remembered: ClassVar[bool] = False
    clone: str
    paths: Annotated[tuple[str, ...], Member("files")]

    def validate(self, fold: Fold) -> Verdict:
        for path in self.paths:
            file = find_file(fold, path) or find_key_file(fold, path)
            if file is None or file.collecting is not None:
                return refused(f"file {path} is already collected")
        if all(_is_pinned(fold, path, self.clone) for path in self.paths):
            return already_done("the files are pinned")
        return APPLY

    def effect(self) -> Effect:
        return Effect(self.clone, len(self.paths))

    def apply(self, fold: Fold) -> None:
        for path in self.paths:
            fold.run("INSERT OR IGNORE INTO pins VALUES (?, ?)", (path_hash(path), self.clone))


@dataclass(frozen=True, slots=True)
class UnpinFiles(Transaction):
    """Ends the clone's need of the files, or of all files if `paths` is None."""

    kind: ClassVar[str] = "unpin_files"
    subject: ClassVar[Subject] = Subject.UPKEEP
    remembered: ClassVar[bool] = False
    clone: str
    paths: Annotated[tuple[str, ...] | None, Member("files")] = None

    def validate(self, fold: Fold) -> Verdict:
        if self.paths is None:
            is_pinned = fold.row("SELECT 1 FROM pins WHERE clone = ? LIMIT 1", (self.clone,))
        else:
            is_pinned = any(_is_pinned(fold, path, self.clone) for path in self.paths)
        return APPLY if is_pinned else already_done("the files are not pinned")

    def effect(self) -> Effect:
        return Effect(self.clone, None if self.paths is None else len(self.paths))

    def apply(self, fold: Fold) -> None:
        if self.paths is None:
            fold.run("DELETE FROM pins WHERE clone = ?", (self.clone,))
        for path in self.paths or ():
            fold.run("DELETE FROM pins WHERE file = ? AND clone = ?", (path_hash(path), self.clone))
        collect_key_files(fold)


def _is_pinned(fold: Fold, path: str, clone: str) -> bool:
    sql = "SELECT 1 FROM pins WHERE file = ? AND clone = ?"
    return fold.row(sql, (path_hash(path), clone)) is not None
