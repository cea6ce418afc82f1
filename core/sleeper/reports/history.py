"""The report on the transactions of a table."""

from collections.abc import Sequence

from sleeper.reports.output import Column, ColumnKind, Listing, describe_omission, pluralize
from sleeper.statestore.reading.history_queries import HistoryEntry

COLUMNS = (
    Column("number", "Transaction", ColumnKind.COUNT),
    Column("time", "Time", ColumnKind.TIME, lambda entry: entry.time_ms),
    Column("operation", "Operation"),
    Column("files", "Files", ColumnKind.COUNT),
    Column("rows", "Rows", ColumnKind.COUNT),
    Column("bytes", "Bytes", ColumnKind.BYTES),
    Column("job", "Job"),
)


def describe_history(name: str, entries: Sequence[HistoryEntry], kept: int) -> Listing:
    """Describes the newest transactions of a table, of which the state keeps a number."""
    return Listing.describe(
        "history",
        f"table {name}: {pluralize(kept, 'recorded transaction')}",
        COLUMNS,
        entries,
        describe_omission(kept, len(entries), "transaction"),
    )
