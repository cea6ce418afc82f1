"""Transactions, their verdicts and their outcomes."""

import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from sleeper.errors import StateMovedOnError
from sleeper.statestore.fold import Effect, Fold


class Status(Enum):
    """APPLIED used a number; ALREADY_DONE and REFUSED changed nothing."""

    APPLIED = "applied"
    ALREADY_DONE = "already done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a validation. APPLIED means: apply it."""

    status: Status
    reason: str = ""


APPLY = Verdict(Status.APPLIED)


def already_done(reason: str) -> Verdict:
    """Returns the verdict that nothing is left to do, which senders may treat as applied."""
    return Verdict(Status.ALREADY_DONE, reason)


def refused(reason: str) -> Verdict:
    """Returns the verdict that the transaction must not be applied."""
    return Verdict(Status.REFUSED, reason)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one transaction.

    `number` is the one it was applied at, now or, if still stored, earlier; None if refused.
    `reason` states why it was refused or already done.
    """

    status: Status
    number: int | None = None
    reason: str = ""

    @property
    def refused(self) -> bool:
        return self.status is Status.REFUSED


def new_transaction_id() -> str:
    """Returns a random id."""
    return uuid.uuid4().hex


class Subject(Enum):
    """What a kind of transaction changes.

    - ROWS: the rows of the table. Followers read these transactions, and their lag counts them.
    - TABLE: something else that users see, such as fields, filters or readable versions.
    - UPKEEP: neither, but files, partitions, leases, or who reads. The history leaves them out,
      unless it is asked for all.
    """

    ROWS = "rows"
    TABLE = "table"
    UPKEEP = "upkeep"


@dataclass(frozen=True, slots=True)
class Transaction(ABC):
    """One change. Subclasses are frozen dataclasses.

    `kind` names the type in the log, and `subject` what it changes. `remembered` states whether the
    fold stores the id to reject a second use; idempotent kinds, such as the renewal of a lease, do
    not need it.
    """

    kind: ClassVar[str]
    subject: ClassVar[Subject]
    json_version: ClassVar[int] = 1
    remembered: ClassVar[bool] = True
    id: str = field(default_factory=new_transaction_id, kw_only=True)

    @abstractmethod
    def validate(self, fold: Fold) -> Verdict:
        """Returns whether it may be applied to the fold. Changes nothing."""

    @abstractmethod
    def apply(self, fold: Fold) -> None:
        """Changes the fold, after a successful `validate` here or by the writer of the log."""

    def effect(self) -> Effect:
        """Returns what the history of the table shows of the transaction."""
        return Effect()


def check_outcome(transaction: Transaction, outcome: Outcome) -> None:
    """Raises StateMovedOnError with the reason if the outcome is a refusal."""
    if outcome.refused:
        raise StateMovedOnError(f"{transaction.kind} {transaction.id}: {outcome.reason}")
