"""Claims on versions: expiring holds, and followers of changes."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from sleeper.errors import InvalidRequestError
from sleeper.json_codec import Member
from sleeper.statestore.fold import Fold
from sleeper.statestore.snapshot_versions import find_expired_fault
from sleeper.statestore.transactions.transaction import (
    APPLY,
    Subject,
    Transaction,
    Verdict,
    already_done,
    refused,
)
from sleeper.systems import follower_prefixes


def find_version_fault(fold: Fold, version: int) -> str | None:
    """Returns why the version cannot be held; None if it can."""
    return find_number_fault(fold, version) or find_expired_fault(fold, version)


def find_number_fault(fold: Fold, version: int) -> str | None:
    """Returns why changes after the version cannot be followed; None if they can."""
    if version < fold.horizon:
        return (
            f"version {version} is below the horizon: the oldest readable version is {fold.horizon}"
        )
    if version > fold.number:
        return f"version {version} does not exist yet: the newest is {fold.number}"
    return None


@dataclass(frozen=True, slots=True)
class CreateHold(Transaction):
    """Keeps a version readable until the expiry; `id` is the hold's.

    The id may be used again, to extend the hold: a retry after an interruption computes a later
    expiry.
    """

    kind: ClassVar[str] = "create_hold"
    subject: ClassVar[Subject] = Subject.UPKEEP
    remembered: ClassVar[bool] = False
    id: str
    owner: str
    version: Annotated[int, Member("holds")]
    expiry_ms: Annotated[int, Member("expiry")]

    def validate(self, fold: Fold) -> Verdict:
        fault = find_version_fault(fold, self.version)
        if fault is None and self.expiry_ms <= fold.time_ms:
            fault = f"hold {self.id} would have expired already"
        if fault:
            return refused(fault)
        sql = "SELECT version, expiry FROM holds WHERE id = ? AND expiry > ?"
        row = fold.row(sql, (self.id, fold.time_ms))
        if row is None:
            return APPLY
        if row[0] != self.version:
            return refused(f"hold {self.id} keeps version {row[0]}, not {self.version}")
        return (
            APPLY if row[1] < self.expiry_ms else already_done("the hold does not expire earlier")
        )

    def apply(self, fold: Fold) -> None:
        fold.run(
            "INSERT OR REPLACE INTO holds VALUES (?, ?, ?, ?)",
            (self.id, self.owner, self.version, self.expiry_ms),
        )


@dataclass(frozen=True, slots=True)
class RenewHold(Transaction):
    """Extends the hold. Refused if it does not exist or the horizon has passed it."""

    kind: ClassVar[str] = "renew_hold"
    subject: ClassVar[Subject] = Subject.UPKEEP
    remembered: ClassVar[bool] = False
    hold_id: Annotated[str, Member("hold")]
    expiry_ms: Annotated[int, Member("expiry")]

    def validate(self, fold: Fold) -> Verdict:
        row = fold.row("SELECT version, expiry FROM holds WHERE id = ?", (self.hold_id,))
        if row is None:
            return refused(f"hold {self.hold_id} does not exist: it expired or was released")
        fault = find_version_fault(fold, row[0])
        if fault:
            return refused(fault)
        return (
            APPLY if row[1] < self.expiry_ms else already_done("the hold does not expire earlier")
        )

    def apply(self, fold: Fold) -> None:
        fold.run("UPDATE holds SET expiry = ? WHERE id = ?", (self.expiry_ms, self.hold_id))


@dataclass(frozen=True, slots=True)
class ReleaseHold(Transaction):
    """Removes the hold."""

    kind: ClassVar[str] = "release_hold"
    subject: ClassVar[Subject] = Subject.UPKEEP
    remembered: ClassVar[bool] = False
    hold_id: Annotated[str, Member("hold")]

    def validate(self, fold: Fold) -> Verdict:
        if fold.row("SELECT 1 FROM holds WHERE id = ?", (self.hold_id,)) is None:
            return already_done(f"hold {self.hold_id} does not exist")
        return APPLY

    def apply(self, fold: Fold) -> None:
        fold.run("DELETE FROM holds WHERE id = ?", (self.hold_id,))


_NAME_LENGTH_MAX = 200


def check_follower_name(name: str) -> None:
    """Raises InvalidRequestError if no follower of users can have the name."""
    if not name.strip() or not name.isprintable() or len(name) > _NAME_LENGTH_MAX:
        raise InvalidRequestError(
            f"invalid follower name: {name[:40]!r} "
            f"(expected 1 to {_NAME_LENGTH_MAX} printable characters)"
        )
    for prefix in follower_prefixes():
        if name.startswith(prefix):
            command = prefix.removesuffix(":")
            raise InvalidRequestError(
                f"follower {name!r} is that of an {command.replace('-', ' ')} (expected another "
                f"name, or `sleeper {command}` with {name.removeprefix(prefix)})"
            )


@dataclass(frozen=True, slots=True)
class CreateFollower(Transaction):
    """Adds a follower. Changes after `start` are kept until it has read them.

    Followers of a snapshot table keep nothing: they skip versions that expired.
    """

    kind: ClassVar[str] = "create_follower"
    subject: ClassVar[Subject] = Subject.UPKEEP
    name: str
    start: int

    def validate(self, fold: Fold) -> Verdict:
        if fold.row("SELECT 1 FROM followers WHERE name = ?", (self.name,)):
            return refused(f"follower {self.name} already exists")
        start = max(self.start, fold.horizon) if fold.is_snapshot_table else self.start
        fault = find_number_fault(fold, start)
        return refused(fault) if fault else APPLY

    def apply(self, fold: Fold) -> None:
        # unique per creation, so that a new follower never inherits a cursor of its name
        cursor_key = f"{self.name}@{fold.next_number}"
        fold.run("INSERT INTO followers VALUES (?, ?, ?)", (self.name, cursor_key, self.start))


@dataclass(frozen=True, slots=True)
class DeleteFollower(Transaction):
    """Removes the follower."""

    kind: ClassVar[str] = "delete_follower"
    subject: ClassVar[Subject] = Subject.UPKEEP
    remembered: ClassVar[bool] = False
    name: str

    def validate(self, fold: Fold) -> Verdict:
        if fold.row("SELECT 1 FROM followers WHERE name = ?", (self.name,)) is None:
            return already_done(f"follower {self.name} does not exist")
        return APPLY

    def apply(self, fold: Fold) -> None:
        fold.run("DELETE FROM followers WHERE name = ?", (self.name,))
