"""Functions of DataFusion over one column."""

from collections.abc import Callable
from functools import cache

import pyarrow as pa
from datafusion import SessionConfig, SessionContext, col
from datafusion.expr import Expr

from sleeper.datafiles.engine.session import new_table_name


def map_column(column: pa.Array, function: Callable[[Expr], Expr], kind: pa.DataType) -> pa.Array:
    """Returns the function's value for each value of the column, in the column's order.

    Raises the bare exceptions of DataFusion.
    """
    session, name = _session(), new_table_name()
    rows = pa.RecordBatch.from_arrays([column], ["value"])
    # A session keeps each table that it was given until the table is deregistered.
    frame = session.create_dataframe([[rows]], name=name)
    try:
        batches = frame.select(function(col("value"))).collect()
    finally:
        session.deregister_table(name)
    return pa.chunked_array([b.column(0).cast(kind) for b in batches], kind).combine_chunks()


@cache
def _session() -> SessionContext:
    # DataFusion divides large batches. Several partitions would return the parts in any order.
    return SessionContext(SessionConfig().with_target_partitions(1))
