"""The deletion of rows by region and by key."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from sleeper.files import KeyFile
from sleeper.json_codec import Member
from sleeper.partitions.region import Region
from sleeper.schema.model import precedes
from sleeper.statestore.deletes import insert_deletes, insert_key_file, region_kinds
from sleeper.statestore.fold import Effect, Fold
from sleeper.statestore.transactions.add_files import find_run_fault
from sleeper.statestore.transactions.transaction import (
    APPLY,
    Subject,
    Transaction,
    Verdict,
    refused,
)


@dataclass(frozen=True, slots=True)
class DeleteRows(Transaction):
    """Hides the rows of the regions and keys that were committed before, from its number on.

    Rows that are committed later are seen. `id` is the delete's: a second use is already done.
    `keys` is a file of keys that a run wrote, which began at `run_start_ms`. `request` describes
    the input of that run: the same id with the same request is already done.
    """

    kind: ClassVar[str] = "delete_rows"
    subject: ClassVar[Subject] = Subject.ROWS
    regions: tuple[Region, ...]
    keys: Annotated[KeyFile | None, Member(optional=True)] = None
    run_start_ms: Annotated[int, Member("run_start", optional=True)] = 0
    request: Annotated[str | None, Member(optional=True)] = None

    def validate(self, fold: Fold) -> Verdict:
        if not self.regions and self.keys is None:
            return refused(f"delete {self.id} has no region")
        kinds = region_kinds(fold)
        regions = self.regions if self.keys is None else (*self.regions, self.keys.region)
        for region in regions:
            fault = _find_region_fault(region, kinds)
            if fault:
                return refused(f"delete {self.id}: {fault}")
        if self.keys is not None:
            fault = _find_key_file_fault(self.keys)
            fault = fault or find_run_fault(fold, self.run_start_ms, [self.keys.path])
            if fault:
                return refused(f"delete {self.id}: {fault}")
        return APPLY

    def effect(self) -> Effect:
        return Effect(self.id)

    def apply(self, fold: Fold) -> None:
        insert_deletes(fold, self.regions)
        if self.keys is not None:
            insert_deletes(fold, [self.keys.region], insert_key_file(fold, self.keys))


def _find_key_file_fault(file: KeyFile) -> str | None:
    if file.keys < 1 or file.bytes < 1:
        return f"key file {file.path} has {file.keys} keys, {file.bytes} bytes: at least 1 and 1"
    return None


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
