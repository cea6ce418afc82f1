"""The deletion of rows by region."""

from dataclasses import dataclass
from typing import ClassVar

from sleeper.partitions.region import Region
from sleeper.schema.model import precedes
from sleeper.statestore.deletes import insert_delete, region_kinds
from sleeper.statestore.fold import Effect, Fold
from sleeper.statestore.transactions.transaction import APPLY, Transaction, Verdict, refused


@dataclass(frozen=True, slots=True)
class DeleteRows(Transaction):
    """Hides the rows of the regions that were committed before, from its number on.

    Rows that are committed later are seen. `id` is the delete's: a second use is already done.
    """

    kind: ClassVar[str] = "delete_rows"
    regions: tuple[Region, ...]

    def validate(self, fold: Fold) -> Verdict:
        if not self.regions:
            return refused(f"delete {self.id} has no region")
        kinds = region_kinds(fold)
        for region in self.regions:
            fault = _find_region_fault(region, kinds)
            if fault:
                return refused(f"delete {self.id}: {fault}")
        return APPLY

    def effect(self) -> Effect:
        return Effect(self.id)

    def apply(self, fold: Fold) -> None:
        for region in self.regions:
            insert_delete(fold, region)


def _find_region_fault(region: Region, kinds: list[type]) -> str | None:
    if [type(r.min) for r in region.ranges] != kinds:
        names = ", ".join(kind.__name__ for kind in kinds)
        return f"the region {region!r} is not of the table's row keys (expected {names})"
    for within in region.ranges:
        if within.max is not None and (
            type(within.max) is not type(within.min) or not precedes(within.min, within.max)
        ):
            return f"the range {within!r} is empty (expected a maximum above the minimum)"
    return None
