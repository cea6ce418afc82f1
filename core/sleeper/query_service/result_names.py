"""Names of objects that hold a query's rows (FORMATS: Query results, S3)."""

import re

_ESCAPED = re.compile(r"[/\x00-\x1f\x7f]|%(?=[0-9A-Fa-f]{2})")


def results_folder(query_id: str) -> str:
    """Where a query's rows are, below the results' root.

    Slashes and control characters of the id are escaped as in URLs. So is a percent sign that
    would read as the start of an escape: no two ids share a folder.
    """
    escaped = _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", query_id)
    return f"query-{escaped}"


def results_path(query_id: str, sub_query_id: str) -> str:
    """Where a subquery's rows are, below the results' root."""
    return f"{results_folder(query_id)}/{sub_query_id}.parquet"
