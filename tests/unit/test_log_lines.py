"""Log records as lines: expected errors have no traceback."""

import logging
import sys

import pytest

from sleeper.errors import UnavailableError
from sleeper.log_lines import LineFormatter


def format_error(error: Exception) -> str:
    try:
        raise error
    except type(error):
        information = sys.exc_info()
    record = logging.LogRecord(
        "x", logging.WARNING, "x.py", 1, "could not record %s", ("it",), information
    )
    return LineFormatter("warning: %(message)s").format(record)


@pytest.mark.parametrize("error", [UnavailableError("no\nspace"), OSError("no\nspace")])
def test_an_expected_error_is_one_line(error: Exception) -> None:
    assert format_error(error) == "warning: could not record it: no space"


def test_another_error_has_a_traceback() -> None:
    assert "Traceback" in format_error(KeyError("x"))
