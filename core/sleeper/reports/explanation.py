"""The report on what an SQL statement reads."""

from dataclasses import astuple

from sleeper.query.sql.explain import SqlExplanation
from sleeper.reports.output import Column, ColumnKind, Listing, counted

_COLUMNS = (
    Column("table", "Table"),
    Column("version", "Version", ColumnKind.COUNT),
    Column("leaves", "Leaves", ColumnKind.COUNT),
    Column("leaves_of", "of", ColumnKind.COUNT),
    Column("files", "Files", ColumnKind.COUNT),
    Column("files_of", "of", ColumnKind.COUNT),
    Column("bytes", "Bytes", ColumnKind.BYTES),
    Column("bytes_of", "of", ColumnKind.BYTES),
    Column("bytes_read", "Read", ColumnKind.BYTES),
    Column("pages", "Pages", ColumnKind.COUNT),
    Column("pages_of", "of", ColumnKind.COUNT),
)


def explanation_listing(explanation: SqlExplanation) -> Listing:
    """A row for each table that the statement names."""
    rows = counted(explanation.rows, "row")
    return Listing(
        name="explanation",
        summary=f"{rows} in {explanation.seconds * 1000:,.0f} ms, read from:",
        columns=_COLUMNS,
        rows=tuple(astuple(reads) for reads in explanation.reads),
    )
