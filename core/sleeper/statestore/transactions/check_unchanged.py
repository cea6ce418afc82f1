"""The condition that nobody has changed rows since they were read."""

from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar

from sleeper.json_codec import Member
from sleeper.partitions.region import Region
from sleeper.statestore.fold import Fold
from sleeper.statestore.transactions.restore import REPLACING_KINDS
from sleeper.statestore.transactions.transaction import (
    APPLY,
    Subject,
    Transaction,
    Verdict,
    refused,
)

CHANGED = "rows that it read were changed"
"""The beginning of the reason of a refusal."""

_REPLACING = ", ".join(f"'{kind}'" for kind in sorted(REPLACING_KINDS))


@dataclass(frozen=True, slots=True)
class CheckUnchanged(Transaction):
    """Refused if rows of the regions may have changed since the version that was read.

    It is committed together with the changes that follow from what was read. Files are
    compared by their key bounds, so a change near the rows can refuse it too.
    """

    kind: ClassVar[str] = "check_unchanged"
    subject: ClassVar[Subject] = Subject.UPKEEP
    remembered: ClassVar[bool] = False
    version: Annotated[int, Member("read")]
    regions: tuple[Region, ...]

    def validate(self, fold: Fold) -> Verdict:
        if self.version > fold.number:
            return refused(
                f"version {self.version} does not exist yet: the newest is {fold.number}"
            )
        if self.version < fold.horizon:
            return refused(
                f"{CHANGED}: version {self.version} is no longer readable: the oldest readable "
                f"version is {fold.horizon}"
            )
        replaced = fold.row(_REPLACED, (self.version,))
        if replaced:
            return refused(f"{CHANGED} by transaction {replaced[0]}")
        for region in self.regions:
            row = fold.row(_changed_sql(fold.dimensions), _parameters(self.version, region))
            if row is not None:
                return refused(f"{CHANGED} by transaction {row[0]}")
        return APPLY

    def apply(self, fold: Fold) -> None:
        """Changes nothing."""


_REPLACED = f"SELECT number FROM history WHERE number > ? AND kind IN ({_REPLACING}) LIMIT 1"


def _parameters(version: int, region: Region) -> dict[str, Any]:
    ends: dict[str, Any] = {"version": version}
    for index, within in enumerate(region.ranges):
        ends |= {f"low_{index}": within.min, f"high_{index}": within.max}
    return ends


@cache
def _changed_sql(dimensions: int) -> str:
    in_file = " AND ".join(
        f"f.largest_{i} >= :low_{i} AND (:high_{i} IS NULL OR f.smallest_{i} < :high_{i})"
        for i in range(dimensions)
    )
    in_delete = " AND ".join(
        f"(:high_{i} IS NULL OR d.min_{i} < :high_{i})"
        f" AND (d.max_{i} IS NULL OR d.max_{i} > :low_{i})"
        for i in range(dimensions)
    )
    return (
        "SELECT f.added FROM files f WHERE f.added > :version AND f.smallest_number = f.added"
        f" AND {in_file} UNION ALL SELECT d.number FROM deletes d WHERE d.number > :version"
        f" AND {in_delete} LIMIT 1"
    )
