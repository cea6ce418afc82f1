"""A tap on a plan's rows: a filter that lets everything pass and looks at the keys.

It sees the keys and their hashes batch by batch, in order, while the engine goes on to write
the rows.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

import numpy as np
import pyarrow as pa
from datafusion import DataFrame, udf

from sleeper.datafiles.key_facts import KeyFacts
from sleeper.datafiles.key_hash import Hashes, hash_expression
from sleeper.datafiles.predicate import column
from sleeper.errors import DataError
from sleeper.schema.model import KeyValue, Schema, precedes

# A limit that limits nothing: the engine moves filters below sorts and merges, where a tap
# would see each input's rows by themselves, but never below a limit.
_NO_LIMIT = 2**62
_ROWS_PER_TURN = 65_536
_QUEUED_TURNS_MAX = 2


class KeyTap:
    """Hears of all rows on their way: takes their keys and hashes, lets each row pass.

    What it takes goes to the facts in turns, in a thread of its own, so that the merge goes
    on meanwhile. Whoever enters it has all facts when it ends.
    """

    def __init__(self, schema: Schema, facts: KeyFacts, on_rows: Callable[[int], None]) -> None:
        self._schema = schema
        self._on_rows = on_rows
        self._last: KeyValue | None = None
        self._keys: list[pa.RecordBatch] = []
        self._hashes: list[Hashes] = []
        self._rows = 0
        self._turns: deque[Future[None]] = deque()
        self._thread = ThreadPoolExecutor(1, "key-facts")
        self.facts = facts
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._hand_over()
                while self._turns:
                    self._turns.popleft().result()
        finally:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def above(self, frame: DataFrame) -> DataFrame:
        """The frame with the tap above it."""
        names = [f.name for f in self._schema.row_keys]
        types = [frame.schema().field(name).type for name in names]
        tap = udf(self._take, [*types, pa.int64()], pa.bool_(), "volatile", "tap")
        columns = [column(name) for name in names]
        return frame.limit(_NO_LIMIT).filter(tap(*columns, hash_expression(columns)))

    def _take(self, *columns: pa.Array) -> pa.Array:
        *keys, hashes = columns
        if not len(hashes):
            return pa.array([], pa.bool_())
        try:
            self._check_order(keys[0])
            names = [f.name for f in self._schema.row_keys]
            self._keys.append(pa.RecordBatch.from_arrays(keys, names))
            self._hashes.append(hashes.to_numpy().view(np.uint64))
            self._rows += len(hashes)
            if self._rows >= _ROWS_PER_TURN:
                self._hand_over()
            self._on_rows(len(hashes))
        except BaseException as error:
            self.error = error
            raise
        return pa.array(np.ones(len(hashes), np.bool_))

    def _hand_over(self) -> None:
        keys, hashes = self._keys, self._hashes
        self._keys, self._hashes, self._rows = [], [], 0
        while len(self._turns) > _QUEUED_TURNS_MAX:
            self._turns.popleft().result()
        self._turns.append(self._thread.submit(self.facts.add_hashed, keys, hashes))

    def _check_order(self, keys: pa.Array) -> None:
        # A plan that lost its order would make no file that is wrong to look at.
        first, last = keys[0].as_py(), keys[-1].as_py()
        if precedes(last, first) or (self._last is not None and precedes(first, self._last)):
            raise DataError(f"rows came out of order: {first!r} to {last!r} after {self._last!r}")
        self._last = last
