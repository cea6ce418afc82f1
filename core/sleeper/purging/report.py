"""The report of a purge: what is gone, what is kept and until when, and what remains."""

from dataclasses import dataclass
from enum import StrEnum

from sleeper.reports.output import Column, ColumnKind, Listing, pluralize, summarize


class ObjectState(StrEnum):
    """Whether an object that may hold purged rows or keys exists.

    A purge waits for *kept* ones. It cannot remove those that *remain*.
    """

    GONE = "gone"
    KEPT = "kept"
    REMAINS = "remains"


@dataclass(frozen=True, slots=True)
class PurgedObject:
    """An object, or a part of one, that held or may hold purged rows or their keys.

    `number` is the first transaction whose version does not need it. `reason` states why it is
    kept or remains, and `until_ms` how long, if that is known.
    """

    object: str
    state: ObjectState
    number: int | None = None
    bytes: int | None = None
    reason: str | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """The result of a purge of rows that were deleted up to transaction `number`."""

    table: str
    number: int
    objects: tuple[PurgedObject, ...]

    @property
    def is_complete(self) -> bool:
        """Whether nothing is kept that a later purge would remove."""
        return not any(each.state is ObjectState.KEPT for each in self.objects)


_NOUNS = {
    ObjectState.GONE: "gone",
    ObjectState.KEPT: "kept",
    ObjectState.REMAINS: "remaining",
}
_COLUMNS = (
    Column("object", "Object", ColumnKind.PATH),
    Column("state", "State", value=lambda each: each.state.value),
    Column("number", "Transaction", ColumnKind.COUNT),
    Column("bytes", "Bytes", ColumnKind.BYTES),
    Column("reason", "Reason"),
    Column("until", "Until", ColumnKind.TIME, lambda each: each.until_ms),
)


def describe_purge(report: PurgeReport) -> Listing:
    """Describes the objects of a purge."""
    states = [each.state for each in report.objects]
    counts = {noun: states.count(state) for state, noun in _NOUNS.items()}
    summary = summarize(pluralize(len(states), "object"), counts)
    return Listing.describe(
        "purge",
        f"table {report.table}, deletes up to transaction {report.number:,}: {summary}",
        _COLUMNS,
        report.objects,
    )
