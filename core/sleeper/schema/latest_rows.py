"""The choice of the rows that a table shows, of those with equal keys, as its properties say it."""

from sleeper.errors import InvalidRequestError
from sleeper.schema.model import LatestRows

LATEST = "latest"


def make_latest(rows: str | None, by: str | None) -> LatestRows | None:
    """Returns the choice of rows by the table properties `rows` and `latest.by`.

    InvalidRequestError if they contradict each other.
    """
    if rows == LATEST:
        return LatestRows(by)
    if rows not in (None, "append"):
        raise InvalidRequestError(f"unknown choice of rows: {rows!r} (expected append, {LATEST})")
    if by is not None:
        raise InvalidRequestError(
            f"property sleeper.table.latest.by is {by!r}, but the table shows all rows (expected "
            f"sleeper.table.rows={LATEST})"
        )
    return None
