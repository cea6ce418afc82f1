"""Transactions on the time of the log: a bar for old runs, and a long jump."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from sleeper.json_codec import Member
from sleeper.statestore.fold import Fold
from sleeper.statestore.transactions.transaction import (
    APPLY,
    Transaction,
    Verdict,
    already_done,
    new_transaction_id,
    refused,
)


@dataclass(frozen=True, slots=True)
class BarRuns(Transaction):
    """Refuses every later commit of a run that began before `before_ms`.

    The orphan collector commits it before it deletes files of such runs. Whether a file can
    still be committed then depends on the log alone, and not on the clocks of the collector
    and of the run. The bar only rises.
    """

    kind: ClassVar[str] = "bar_runs"
    remembered: ClassVar[bool] = False
    before_ms: Annotated[int, Member("before")]
    id: str = field(default_factory=new_transaction_id)

    def validate(self, fold: Fold) -> Verdict:
        if self.before_ms <= fold.run_bar_ms:
            return already_done(f"runs that began before {fold.run_bar_ms} are barred already")
        newest_ms = fold.time_ms - fold.orphan_age_ms
        if self.before_ms > newest_ms:
            return refused(
                f"runs are barred up to {self.before_ms}, which is younger than the orphan age "
                f"(expected at most {newest_ms})"
            )
        return APPLY

    def apply(self, fold: Fold) -> None:
        fold.run_bar_ms = self.before_ms


@dataclass(frozen=True, slots=True)
class AcceptTime(Transaction):
    """Accepts a jump of many days of the log's time.

    `time_ms` is the time that an operator confirmed. The committer refuses such jumps in other
    entries, because a wrong clock would drop the ids of jobs and age off rows.
    """

    kind: ClassVar[str] = "accept_time"
    remembered: ClassVar[bool] = False
    time_ms: Annotated[int, Member("time")]
    id: str = field(default_factory=new_transaction_id)

    def validate(self, fold: Fold) -> Verdict:  # noqa: ARG002 (any state will do)
        return APPLY

    def apply(self, fold: Fold) -> None:
        """Changes nothing: the entry has a time, as every entry has."""
