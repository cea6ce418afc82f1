"""Formats of rows, chosen by the Accept header."""

import pytest
from starlette.exceptions import HTTPException

from sleeper.serve.row_answer import (
    ARROW_STREAM,
    CSV,
    JSON_LINES,
    PARQUET,
    RowFormat,
    choose_format,
)

ARROW = "application/vnd.apache.arrow.stream"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, JSON_LINES),
        ("", JSON_LINES),
        ("*/*", JSON_LINES),
        ("application/jsonl", JSON_LINES),
        (ARROW, ARROW_STREAM),
        (f"text/html, {ARROW};q=0.5", ARROW_STREAM),
        (f"{ARROW};q=0.1, application/x-ndjson;q=0.2", JSON_LINES),
        (f"{ARROW}; q=1, */*;q=0.1", ARROW_STREAM),
        (f"{ARROW};q=0, */*", JSON_LINES),
        ("text/csv", CSV),
        ("application/vnd.apache.parquet", PARQUET),
    ],
)
def test_preferred_format_is_chosen(accept: str | None, expected: RowFormat) -> None:
    assert choose_format(accept) is expected


@pytest.mark.parametrize("accept", ["text/html", f"{ARROW};q=0", f"{ARROW};q=many", ";;,"])
def test_unknown_formats_are_refused(accept: str) -> None:
    with pytest.raises(HTTPException) as error:
        choose_format(accept)
    assert error.value.status_code == 406
