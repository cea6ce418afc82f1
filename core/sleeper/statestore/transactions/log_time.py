"""Accepts a time that is far ahead of the log's."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from sleeper.json_codec import Member
from sleeper.statestore.fold import Fold
from sleeper.statestore.outcome import APPLY, Verdict
from sleeper.statestore.transactions.transaction import Transaction, new_transaction_id


@dataclass(frozen=True, slots=True)
class AcceptTime(Transaction):
    """Moves the log's time to that of its entry, although that is a jump of many days.

    `time_ms` is the time that an operator found to be right. The committer refuses other
    entries that move the log's time so far, because a clock that is wrong would forget the ids
    of jobs and age rows off.
    """

    kind: ClassVar[str] = "accept_time"
    remembered: ClassVar[bool] = False
    time_ms: Annotated[int, Member("time")]
    id: str = field(default_factory=new_transaction_id)

    def validate(self, fold: Fold) -> Verdict:  # noqa: ARG002 (any state will do)
        return APPLY

    def apply(self, fold: Fold) -> None:
        """Changes nothing: the entry has a time, as every entry has."""
