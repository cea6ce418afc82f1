"""Transactions, their verdicts and their outcomes."""

import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from sleeper.statestore.fold import Fold


class Status(Enum):
    """APPLIED took a number; ALREADY_DONE and REFUSED changed nothing."""

    APPLIED = "applied"
    ALREADY_DONE = "already done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A transaction's judgement on itself against a state. APPLIED means: apply it."""

    status: Status
    reason: str = ""


APPLY = Verdict(Status.APPLIED)


def already_done(reason: str) -> Verdict:
    """Nothing is left to do; the sender may treat it as applied."""
    return Verdict(Status.ALREADY_DONE, reason)


def refused(reason: str) -> Verdict:
    """It must not be applied, because."""
    return Verdict(Status.REFUSED, reason)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one transaction.

    `number` is the one it was applied at, now or, if it is still known, earlier; None
    when refused. `reason` says why it was refused or that nothing was left to do.
    """

    status: Status
    number: int | None = None
    reason: str = ""

    @property
    def refused(self) -> bool:
        return self.status is Status.REFUSED


def new_transaction_id() -> str:
    """A fresh id, random."""
    return uuid.uuid4().hex


class Transaction(ABC):
    """One change. Subclasses are frozen dataclasses with a field `id`.

    `kind` names the type in the log. `remembered` says whether the fold keeps the id, so
    that it cannot be used twice; those that change nothing the second time anyway, such
    as renewing a lease, need no memory.
    """

    __slots__ = ()

    kind: ClassVar[str]
    json_version: ClassVar[int] = 1
    remembered: ClassVar[bool] = True
    id: str

    @abstractmethod
    def validate(self, fold: Fold) -> Verdict:
        """Whether it may be applied to the fold as it is now. Changes nothing."""

    @abstractmethod
    def apply(self, fold: Fold) -> None:
        """Changes the fold. Called after `validate` said so, here or where it was logged."""
