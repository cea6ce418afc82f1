"""The rows of an ingest between their source and the data files, and the last row of each key."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.expression import SortKey, rank_sort_keys
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge.first_of_key import keep_first, refuse_ties
from sleeper.datafiles.merge.request import NUMBER_FIELD, with_hidden
from sleeper.datafiles.merge.sort import RowSort
from sleeper.datafiles.write.partitioned import (
    FileStrategy,
    WriteTarget,
    WrittenFile,
    write_sorted,
)
from sleeper.datafiles.write.sorted_file import is_one_file, write_sorted_file
from sleeper.schema.model import DELETED_COLUMN, Schema
from sleeper.statestore.transactions.add_files import NewFile


class LastRows:
    """Keeps the last row of each key of an ingest: the newest by its field, or by its place.

    Rows are staged with their place in the input, and sorted with the newest of each key first.
    `staged` are the fields in between. If the input `has_order`, its last row is the newest;
    otherwise a key may be twice only if the field orders its rows.
    """

    def __init__(self, schema: Schema, has_order: bool = True) -> None:
        self._schema = schema
        self._has_order = has_order
        self._rows = 0
        self._has_tombstones = False
        deleted = with_hidden(schema, has_numbers=False, has_tombstones=True)
        # No later file has this column, so it may have the name of the number.
        self.staged = replace(deleted, values=(*deleted.values, NUMBER_FIELD))

    @property
    def order(self) -> tuple[SortKey, ...]:
        """The order of the staged rows."""
        return rank_sort_keys(self._schema)

    @property
    def written(self) -> Schema:
        """The fields of the files, when all rows are staged."""
        return with_hidden(self._schema, False, self._has_tombstones)

    def stage(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of the table's fields, maybe with tombstones, as staged rows."""
        kind = arrow_schema(self.staged)
        for batch in batches:
            rows = batch.num_rows
            fields = batch.columns[: len(self._schema.fields)]
            deleted = pa.nulls(rows, pa.bool_())
            if batch.num_columns > len(fields):
                deleted = batch.column(DELETED_COLUMN)
                self._has_tombstones |= deleted.null_count < rows
            positions = pa.array(np.arange(self._rows, self._rows + rows))
            self._rows += rows
            yield pa.RecordBatch.from_arrays([*fields, deleted, positions], schema=kind)

    def keep(self, in_order: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the first row of each key, with the columns of the files."""
        columns = [field.name for field in self.written.fields]
        if not self._has_order:
            in_order = refuse_ties(in_order, self._schema)
        yield from keep_first(in_order, self._schema, columns)


class GatheredRows:
    """The rows of an ingest before they are sorted. Of latest rows, each key is written once."""

    def __init__(
        self, schema: Schema, folder: Path, engine: EngineSettings, has_order: bool = True
    ) -> None:
        self._schema = schema
        self._last = last = None if schema.latest is None else LastRows(schema, has_order)
        if last is None:
            self.unsorted = RowSort(schema, folder, engine)
        else:
            self.unsorted = RowSort(last.staged, folder, engine, last.order)

    @property
    def is_scannable(self) -> bool:
        """Whether files may be added unchanged."""
        return self._last is None

    @property
    def written(self) -> Schema:
        """The fields of the files to write."""
        return self._schema if self._last is None else self._last.written

    def add_batches(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Adds checked rows, in the order of the input."""
        self.unsorted.add_batches(batches if self._last is None else self._last.stage(batches))

    def close(self) -> None:
        """Ends all work in the folder, which may be deleted then."""
        self.unsorted.close()

    def in_order(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows to write."""
        rows = self.unsorted.batches()
        return rows if self._last is None else self._last.keep(rows)

    def write(
        self,
        target: WriteTarget,
        strategy: FileStrategy,
        on_rows: Callable[[int], None] = lambda _: None,
    ) -> tuple[NewFile, ...]:
        """Sorts the rows and writes them to data files."""
        if self._last is None and is_one_file(target, strategy):
            written = write_sorted_file(self.unsorted, target, on_rows)
            if written is not None:
                return _new_files([written])
        return _new_files(write_sorted(self.in_order(), target, strategy, on_rows))


def _new_files(written: Iterable[WrittenFile]) -> tuple[NewFile, ...]:
    """Returns the written files as parts of a commit."""
    return tuple(
        NewFile(w.file, tuple((r.partition_id, r.rows) for r in w.references)) for w in written
    )
