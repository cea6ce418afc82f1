"""Rows of a table as envelopes, whose keys and values an extractor makes."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from sleeper.adjunct.contents.documents import DocumentWriter
from sleeper.adjunct.contents.rows import select_partition
from sleeper.adjunct.contents.writes import Writes
from sleeper.adjunct.envelope import Envelope
from sleeper.adjunct.extraction import Extract
from sleeper.adjunct.store import Store
from sleeper.adjunct.store_state import Layout
from sleeper.partitions.region import Region
from sleeper.schema.model import Schema

_BATCH_ROWS = 1_024


class ExtractedRows:
    """The writer of stores with an extractor. See `RowWriter`.

    The key of a row's envelope is its row key, a tuple if that has several fields, and its value
    has all other fields. A row that is deleted has no value.
    """

    is_sorted = False

    def __init__(self, store: Store, extract: Extract, schema: Schema) -> None:
        self.place = ""
        self._store = store
        self._schema = schema
        self._extract = extract
        self._key_names = [each.name for each in schema.row_keys]
        self._writer: DocumentWriter | None = None

    def layout(self) -> Layout | None:
        """See the protocol."""
        return None if self._writer is None else self._writer.layout()

    def put_all(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Writes]:
        """See the protocol."""
        self._writer = DocumentWriter(self._store.definition.name)
        for rows in batches:
            yield from self.put(rows)

    def put(self, rows: pa.RecordBatch) -> Iterator[Writes]:
        """See the protocol."""
        selected = select_partition(rows, self._schema, self._store.definition.partition)
        for start in range(0, selected.num_rows, _BATCH_ROWS):
            part = selected.slice(start, _BATCH_ROWS).to_pylist()
            yield self._convert((self._take_key(row), row) for row in part)

    def delete(self, keys: pa.RecordBatch) -> Iterator[Writes]:
        """See the protocol."""
        selected = select_partition(keys, self._schema, self._store.definition.partition)
        named = selected.select(self._key_names)
        for start in range(0, named.num_rows, _BATCH_ROWS):
            part = named.slice(start, _BATCH_ROWS).to_pylist()
            yield self._convert((self._take_key(row), None) for row in part)

    def delete_region(self, region: Region) -> Writes | None:
        """See the protocol."""
        del region
        return None

    def _take_key(self, row: dict[str, Any]) -> Any:
        """Removes the row key from the row, and returns it."""
        values = tuple(row.pop(name) for name in self._key_names)
        return values if len(values) > 1 else values[0]

    def _convert(self, pairs: Iterable[tuple[Any, dict[str, Any] | None]]) -> Writes:
        if self._writer is None:
            state = self._store.state
            layout = None if state is None else state.layout
            self._writer = DocumentWriter(self._store.definition.name, layout)
        make = partial(Envelope, self._store.definition.input, "0", self.place, self.place)
        envelopes = (make(key, value) for key, value in pairs)
        return self._writer.put((*self._extract(each), each) for each in envelopes)
