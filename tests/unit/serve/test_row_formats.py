"""Which format a caller gets."""

import pytest
from starlette.exceptions import HTTPException

from sleeper.serve.row_formats import ARROW_STREAM, JSON_LINES, RowFormat, accepted_format

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
    ],
)
def test_the_format_that_is_wanted_most(accept: str | None, expected: RowFormat) -> None:
    assert accepted_format(accept) is expected


@pytest.mark.parametrize("accept", ["text/csv", f"{ARROW};q=0", f"{ARROW};q=many", ";;,"])
def test_what_is_not_given_is_refused(accept: str) -> None:
    with pytest.raises(HTTPException) as refused:
        accepted_format(accept)
    assert refused.value.status_code == 406
