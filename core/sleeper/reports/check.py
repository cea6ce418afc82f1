"""The report on a check of a table's data files against its state."""

from collections.abc import Sequence
from dataclasses import dataclass

from sleeper.reports.listing import Column, ColumnKind, Listing, counted

_COLUMNS = (
    Column("path", "File", ColumnKind.PATH),
    Column("row_group", "Row group", ColumnKind.COUNT),
    Column("fault", "What is wrong"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with a file; `row_group` is None if it is with all of it."""

    path: str
    row_group: int | None
    fault: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What was read of a table at a version, and what is wrong with it."""

    table: str
    version: int
    files: int
    rows: int
    findings: Sequence[Finding]

    def listing(self) -> Listing:
        """A row for each thing that is wrong."""
        verdict = "all is well" if not self.findings else counted(len(self.findings), "fault")
        return Listing(
            name="check",
            summary=(
                f"table {self.table} at version {self.version:,}: {counted(self.files, 'file')}, "
                f"{counted(self.rows, 'row')} read: {verdict}"
            ),
            columns=_COLUMNS,
            rows=tuple((f.path, f.row_group, f.fault) for f in self.findings),
        )
