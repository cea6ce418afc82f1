"""The filter that leaves out deleted rows, above the scan of a file.

The function that the engine calls is declared as volatile. Otherwise it would be evaluated inside
the scan, which takes longer, and perhaps more than once for a row.
"""

from functools import partial
from itertools import count

import pyarrow as pa
from datafusion import udf
from datafusion.expr import Expr

from sleeper.datafiles.arrow import view_schema
from sleeper.datafiles.engine.expression import column
from sleeper.datafiles.merge.deletes import DeletedRows, OnDropped

_numbers = count()


def undeleted_predicate(deleted: DeletedRows, on_dropped: OnDropped = lambda _: None) -> Expr:
    """Returns the predicate for the rows to keep.

    `on_dropped` receives the number of deleted rows of batches, from several threads.
    """
    kinds = view_schema(deleted.schema)
    names = [field.name for field in deleted.schema.row_keys]
    types = [kinds.field(name).type for name in names]
    # The name identifies the function in a plan.
    name = f"keep_undeleted_{next(_numbers)}"
    keeps = udf(partial(deleted.keep, on_dropped=on_dropped), types, pa.bool_(), "volatile", name)
    return keeps(*(column(name) for name in names))
