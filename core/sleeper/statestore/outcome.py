"""What validation says of a transaction, and what its sender is told."""

from dataclasses import dataclass
from enum import Enum


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
