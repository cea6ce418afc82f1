"""Reports as lists of mappings."""

from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance as Ports
from sleeper.reports.output import Listing, ReportKind, json_rows
from sleeper.reports.service import report

Report = list[dict[str, Any]]
"""A mapping for each row of a report, from the names of columns to values. The member `report` is
the name of the report. Times are ISO 8601 in UTC. pandas and Polars make frames of it."""


def gather_report(instance: Ports, kind: str, table_name: str | None, limit: int | None) -> Report:
    """Returns the rows of a report on one table or all of them.

    Raises `InvalidRequestError` for an unknown kind or a negative limit.
    """
    try:
        chosen = ReportKind(kind)
    except ValueError as error:
        names = ", ".join(ReportKind)
        raise InvalidRequestError(f"unknown report {kind!r} (expected one of: {names})") from error
    if limit is not None and limit < 0:
        raise InvalidRequestError(f"invalid limit: {limit} (expected 0 or more)")
    listings = report(instance, chosen, table_name, limit)
    return [row for each in listings for row in describe_rows(each)]


def describe_rows(listing: Listing) -> Report:
    """Returns the rows of a listing."""
    return [{"report": listing.name, **row} for row in json_rows(listing)]
