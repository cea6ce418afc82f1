"""The report on queries."""

from sleeper.reports.listing import Column, Listing

_COLUMNS = (Column("query", "Query"), Column("table", "Table"), Column("state", "State"))


def untracked_queries() -> Listing:
    """No rows: a query of a local instance runs in the process that asks, and is not tracked."""
    return Listing(
        name="queries",
        summary="0 queries are tracked",
        columns=_COLUMNS,
        rows=(),
        note="a query of a local instance runs in the process that asks, and is not tracked",
    )
