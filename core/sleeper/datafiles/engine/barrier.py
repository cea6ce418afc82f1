"""A barrier in a plan, below which the engine moves no condition.

DataFusion moves filters below projections, sorts, merges and other filters, so it may evaluate a
condition on rows that another filter hides. It never moves a filter below a limit.
"""

from datafusion import DataFrame

NO_LIMIT = 2**62


def add_barrier(frame: DataFrame) -> DataFrame:
    """Returns the frame with a barrier: later filters see only the rows of earlier ones."""
    return frame.limit(NO_LIMIT)
