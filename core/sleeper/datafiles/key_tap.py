"""A tap on a plan's rows: a filter that lets everything pass and looks at the keys.

It sees the keys and their hashes batch by batch, in order, while the engine goes on to write
the rows.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from datafusion import DataFrame, udf

from sleeper.datafiles.key_facts import KeyFacts
from sleeper.datafiles.key_hash import hash_expression
from sleeper.datafiles.predicate import column
from sleeper.errors import DataError
from sleeper.schema.model import KeyValue, Schema, precedes

# A limit that limits nothing: the engine moves filters below sorts and merges, where a tap
# would see each input's rows by themselves, but never below a limit.
_NO_LIMIT = 2**62


class KeyTap:
    """Hears of all rows on their way: has their keys and hashes taken, lets each row pass.

    The merge waits meanwhile: that is less than to hand the keys to another thread would take.
    """

    def __init__(self, schema: Schema, facts: KeyFacts, on_rows: Callable[[int], None]) -> None:
        self._names = [f.name for f in schema.row_keys]
        self._on_rows = on_rows
        self._last: KeyValue | None = None
        self._all_pass = _all_true(0)
        self.facts = facts
        self.error: BaseException | None = None

    def above(self, frame: DataFrame) -> DataFrame:
        """The frame with the tap above it."""
        columns = [column(name) for name in self._names]
        types = [frame.schema().field(name).type for name in self._names]
        taken = columns
        if self.facts.want_hashes:
            taken, types = [*columns, hash_expression(columns)], [*types, pa.int64()]
        tap = udf(self._take, types, pa.bool_(), "volatile", "tap")
        return frame.limit(_NO_LIMIT).filter(tap(*taken))

    def _take(self, *columns: pa.Array) -> pa.Array:
        fields = len(self._names)
        keys = pa.RecordBatch.from_arrays(list(columns[:fields]), self._names)
        hashes = columns[fields].to_numpy().view(np.uint64) if columns[fields:] else None
        if len(self._all_pass) != keys.num_rows:
            self._all_pass = _all_true(keys.num_rows)
        if not keys.num_rows:
            return self._all_pass
        try:
            self._check_order(keys.column(0))
            self.facts.add_hashed(keys, hashes)
            self._on_rows(keys.num_rows)
        except BaseException as error:
            self.error = error
            raise
        return self._all_pass

    def _check_order(self, keys: pa.Array) -> None:
        # A plan that lost its order would make no file that is wrong to look at.
        first, last = keys[0].as_py(), keys[-1].as_py()
        if precedes(last, first) or (self._last is not None and precedes(first, self._last)):
            raise DataError(f"rows came out of order: {first!r} to {last!r} after {self._last!r}")
        self._last = last


def _all_true(rows: int) -> pa.Array:
    return pa.array(np.ones(rows, np.bool_))
