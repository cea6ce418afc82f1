"""The report on the transactions of a table."""

from sleeper.reports.output import Column, ColumnKind, Listing, describe_omission, pluralize
from sleeper.statestore.reading.history_queries import History

COLUMNS = (
    Column("number", "Transaction", ColumnKind.COUNT),
    Column("time", "Time", ColumnKind.TIME, lambda entry: entry.time_ms),
    Column("operation", "Operation"),
    Column("files", "Files", ColumnKind.COUNT),
    Column("rows", "Rows", ColumnKind.COUNT),
    Column("bytes", "Bytes", ColumnKind.BYTES),
    Column("job", "Job"),
)


def describe_history(name: str, history: History) -> Listing:
    """Describes the newest transactions of a table, and how many of its upkeep are hidden."""
    hidden = f"; {history.hidden:,} of upkeep hidden" if history.hidden else ""
    return Listing.describe(
        "history",
        f"table {name}: {pluralize(history.recorded, 'recorded transaction')}{hidden}",
        COLUMNS,
        history.entries,
        describe_omission(history.recorded, len(history.entries), "transaction"),
    )
