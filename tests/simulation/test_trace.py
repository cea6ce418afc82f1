"""The history of a run has the log lines of the product, and reports the errors in them."""

import logging

from simulation.trace import TraceHandler


def test_errors_that_are_logged_are_reported() -> None:
    lines: list[str] = []
    errors: list[BaseException] = []
    logger = logging.Logger("product")
    logger.addHandler(TraceHandler(lines.append, errors.append))
    logger.warning("slow")
    try:
        raise ValueError("broken")
    except ValueError:
        logger.exception("job failed")
    assert lines == ["log warning product: slow", "log error product: job failed"]
    assert [str(each) for each in errors] == ["broken"]
