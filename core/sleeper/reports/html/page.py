"""The HTML page of a report: tables, pictures and notes, in one file that loads nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from sleeper.clock import iso_time
from sleeper.reports.html.markup import Markup, element, join
from sleeper.reports.html.pictures import draw_partitions, draw_time_line
from sleeper.reports.output import ColumnKind, Listing, Value
from sleeper.reports.text_table import NUMERIC, format_value

_JOBS = "-jobs"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_GOOD = {"committed", "finished", "completed", "ended", "active"}
_BAD = {"failed", "partially failed", "rejected", "lost", "died", "unreadable"}


@dataclass(frozen=True, slots=True)
class TablePart:
    """The part of a page on one table."""

    name: str
    listings: Sequence[Listing]


@dataclass(frozen=True, slots=True)
class ReportPage:
    """A report on an instance at a time: its own listings, and those of its tables."""

    instance_id: str
    time_ms: int
    listings: Sequence[Listing]
    tables: Sequence[TablePart] = ()


def format_page(page: ReportPage) -> str:
    """Returns the page as HTML that is XML, too. Times are in UTC."""
    title = f"Sleeper instance {page.instance_id}"
    time = f"{iso_time(page.time_ms)[:19].replace('T', ' ')} UTC"
    parts = [("instance", page.instance_id, _format_listings(page.listings, page.time_ms))]
    parts += [
        (f"table-{number}", each.name, _format_listings(each.listings, page.time_ms))
        for number, each in enumerate(page.tables)
    ]
    links = [element("a", {"href": f"#{anchor}"}, name) for anchor, name, _ in parts]
    sections = [
        element("section", {"id": anchor}, element("h2", None, name), content)
        for anchor, name, content in parts
    ]
    head = element(
        "head",
        None,
        Markup('<meta charset="utf-8"/>'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1"/>'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"/>'),
        element("title", None, title),
        element("style", None, Markup(_style())),
    )
    top = element("header", None, element("h1", None, title), element("p", None, time))
    navigation = element("nav", {"aria-label": "Parts"}, *links) if len(parts) > 1 else Markup()
    body = element("body", None, top, navigation, element("main", None, *sections))
    return f'<!doctype html>\n<html lang="en">\n{join(head, body)}\n</html>\n'


def _format_listings(listings: Sequence[Listing], now_ms: int) -> Markup:
    jobs = [each for each in listings if each.name.endswith(_JOBS)]
    time_line = draw_time_line(jobs, now_ms)
    result = []
    for each in listings:
        if jobs and each is jobs[0]:
            result.append(time_line)
        result.append(_format_listing(each))
    return join(*result)


def _format_listing(listing: Listing) -> Markup:
    summary = element("h3", None, listing.summary[:1].upper() + listing.summary[1:])
    note = element("p", None, listing.note) if listing.note else Markup()
    picture = draw_partitions(listing) if listing.name == "partition-sizes" else Markup()
    return element("article", None, summary, picture, _format_table(listing), note)


def _format_table(listing: Listing) -> Markup:
    """Returns the rows under their headings, without columns of no values and of JSON objects."""
    shown = [
        number
        for number in range(len(listing.columns))
        if any(row[number] not in (None, "", {}) for row in listing.rows)
        and not any(isinstance(row[number], Mapping) for row in listing.rows)
    ]
    if not shown:
        return Markup()
    head = [_format_heading(listing, number) for number in shown]
    body = [
        element("tr", None, *(_format_cell(listing, number, row[number]) for number in shown))
        for row in listing.rows
    ]
    table = element(
        "table",
        None,
        element("caption", None, listing.summary),
        element("thead", None, element("tr", None, *head)),
        element("tbody", None, *body),
    )
    region: dict[str, str | float | None] = {
        "class": "scroll",
        "role": "region",
        "tabindex": "0",
        "aria-label": listing.summary,
    }
    return element("div", region, table)


def _format_heading(listing: Listing, number: int) -> Markup:
    attributes: dict[str, str | float | None] = {"scope": "col", "class": _align(listing, number)}
    return element("th", attributes, listing.columns[number].heading)


def _format_cell(listing: Listing, number: int, value: Value) -> Markup:
    column = listing.columns[number]
    text = format_value(column, value, str)
    if column.name == "state":
        kind = "good" if text in _GOOD else "bad" if text in _BAD else None
        return element("td", {"class": kind}, text)
    title = str(value) if column.kind is ColumnKind.PATH and value != text else None
    return element("td", {"class": _align(listing, number), "title": title}, text)


def _align(listing: Listing, number: int) -> str | None:
    return "right" if listing.columns[number].kind in NUMERIC else None


@cache
def _style() -> str:
    return (resources.files(__package__) / "page.css").read_text(encoding="utf-8")
