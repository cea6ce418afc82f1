"""Named readers of the changes come and go. Their cursors live beside the log."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from sleeper.statestore.fold import Fold
from sleeper.statestore.outcome import APPLY, Verdict, already_done, refused
from sleeper.statestore.transactions.holds import fault_of_version
from sleeper.statestore.transactions.transaction import Transaction, new_transaction_id


@dataclass(frozen=True, slots=True)
class CreateFollower(Transaction):
    """From now on what changed after `start` is kept until the follower has read it."""

    kind: ClassVar[str] = "create_follower"
    name: str
    start: int
    id: str = field(default_factory=new_transaction_id)

    def validate(self, fold: Fold) -> Verdict:
        if fold.row("SELECT 1 FROM followers WHERE name = ?", (self.name,)):
            return refused(f"follower {self.name} exists already")
        fault = fault_of_version(fold, self.start)
        return refused(fault) if fault else APPLY

    def apply(self, fold: Fold) -> None:
        # fresh for each creation, so that a follower never inherits a cursor by its name
        cursor_key = f"{self.name}@{fold.next_number}"
        fold.run("INSERT INTO followers VALUES (?, ?, ?)", (self.name, cursor_key, self.start))

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "start": self.start}

    @classmethod
    def from_json(cls, transaction_id: str, raw: dict[str, Any]) -> Self:
        return cls(raw["name"], raw["start"], transaction_id)


@dataclass(frozen=True, slots=True)
class DeleteFollower(Transaction):
    """Nothing is kept for the follower any more."""

    kind: ClassVar[str] = "delete_follower"
    remembered: ClassVar[bool] = False
    name: str
    id: str = field(default_factory=new_transaction_id)

    def validate(self, fold: Fold) -> Verdict:
        if fold.row("SELECT 1 FROM followers WHERE name = ?", (self.name,)) is None:
            return already_done(f"follower {self.name} is gone already")
        return APPLY

    def apply(self, fold: Fold) -> None:
        fold.run("DELETE FROM followers WHERE name = ?", (self.name,))

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name}

    @classmethod
    def from_json(cls, transaction_id: str, raw: dict[str, Any]) -> Self:
        return cls(raw["name"], transaction_id)
