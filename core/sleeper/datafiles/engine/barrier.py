"""A barrier in a plan, below which the engine moves no condition.

DataFusion moves filters below projections, sorts, merges and other filters, so that it may evaluate
a condition on rows that a filter below it hides. It never moves one below a limit.
"""

from datafusion import DataFrame

NO_LIMIT = 2**62


def add_barrier(frame: DataFrame) -> DataFrame:
    """Returns all rows of the frame, of which filters above see only those of filters below."""
    return frame.limit(NO_LIMIT)
