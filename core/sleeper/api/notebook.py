"""HTML of instances, tables and results for notebooks, which never reads rows."""

from collections.abc import Iterable, Sequence
from html import escape

from sleeper.errors import SleeperError
from sleeper.instance import Instance as Ports
from sleeper.reports.output import ColumnKind, ReportKind, Value, pluralize
from sleeper.reports.service import report, report_table
from sleeper.reports.text_table import format_bytes

_TABLES_MAX = 20
_FIELDS_MAX = 200
_TEXT_MAX = 200
_TABLE_COLUMNS = ("name", "online", "rows", "files", "bytes", "leaves")


def instance_html(instance: Ports) -> str:
    """Returns the location of an instance, and its tables with their sizes."""
    try:
        (listing,) = report(instance, ReportKind.TABLES, limit=_TABLES_MAX)
    except SleeperError as error:
        return _paragraph(f"Sleeper instance {instance.where}", str(error))
    positions = [i for i, each in enumerate(listing.columns) if each.name in _TABLE_COLUMNS]
    columns = [listing.columns[i] for i in positions]
    rows = [
        [_format(row[i], column.kind) for i, column in zip(positions, columns, strict=True)]
        for row in listing.rows
    ]
    title = _paragraph(f"Sleeper instance {instance.where}", listing.summary)
    return title + (_grid([each.heading for each in columns], rows) if rows else "")


def table_html(instance: Ports, name: str) -> str:
    """Returns the name and size of a table, and its fields."""
    try:
        described = report_table(instance, name)
    except SleeperError as error:
        return _paragraph(f"Sleeper table {name}", str(error))
    totals = described.totals
    size = (
        f"{pluralize(totals.rows, 'row')}, {format_bytes(totals.bytes)} in "
        f"{pluralize(totals.files, 'file')}, {pluralize(totals.leaves, 'leaf', 'leaves')}, "
        f"transaction {described.version:,}"
    )
    listing = next(each for each in described.listings() if each.name == "schema")
    rows = [[_format(value) for value in row] for row in listing.rows]
    title = _paragraph(f"Sleeper table {name}", size)
    return title + _grid([each.heading for each in listing.columns], rows)


def result_html(columns: Iterable[tuple[str, str]], state: str) -> str:
    """Returns the names and types of the columns of a result, and whether it was read."""
    rows = [list(column) for column in columns]
    return _paragraph("Sleeper result", state) + _grid(["Column", "Type"], rows)


def _format(value: Value, kind: ColumnKind = ColumnKind.TEXT) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return format_bytes(value) if kind is ColumnKind.BYTES else f"{value:,}"
    return str(value)


def _paragraph(title: str, text: str) -> str:
    return f"<p><b>{_cell(title)}</b>: {_cell(text)}</p>"


def _grid(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    shown = [headings, *rows[:_FIELDS_MAX]]
    marks = ["th", *["td"] * (len(shown) - 1)]
    lines = "".join(
        "<tr>" + "".join(f"<{mark}>{_cell(value)}</{mark}>" for value in row) + "</tr>"
        for mark, row in zip(marks, shown, strict=True)
    )
    omitted = len(rows) - _FIELDS_MAX
    note = f"<p>and {omitted:,} more</p>" if omitted > 0 else ""
    return f"<table>{lines}</table>{note}"


def _cell(text: str) -> str:
    short = text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"
    return escape(short)
