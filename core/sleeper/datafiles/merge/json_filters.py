"""Filters of documents as part of a plan."""

from collections.abc import Sequence
from functools import partial
from itertools import count

import pyarrow as pa
from datafusion import DataFrame, udf

from sleeper.datafiles.arrow import as_plain
from sleeper.datafiles.documents.containment import contains
from sleeper.datafiles.engine.expression import column, key_order
from sleeper.datafiles.engine.scan import add_barrier
from sleeper.processing.model import JsonContains
from sleeper.schema.model import Schema

_numbers = count()


def filter_documents(
    frame: DataFrame, schema: Schema, filters: Sequence[JsonContains]
) -> DataFrame:
    """Returns the rows whose documents contain the values of all filters.

    The filters see no row that an earlier one hides, whose text may be no JSON: it is not read
    before a field of text becomes one of JSON.
    """
    if not filters:
        return frame
    # A barrier keeps the order of sorted rows only.
    frame = add_barrier(frame.sort(*key_order(schema)))
    for each in filters:
        kind = frame.schema().field(each.field).type
        # The name identifies the function in a plan.
        name = f"contains_{next(_numbers)}"
        keeps = udf(partial(_contain, each.json), [kind], pa.bool_(), "volatile", name)
        frame = frame.filter(keeps(column(each.field)))
    return frame


def _contain(candidate: str, documents: pa.Array) -> pa.Array:
    return contains(as_plain(documents), candidate)
