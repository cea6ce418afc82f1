"""The rows of an ingest between their source and the data files."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.datafiles.merge.last_rows import LastRows
from sleeper.datafiles.merge.sort import RowSort
from sleeper.datafiles.write.partitioned import (
    FileStrategy,
    WriteTarget,
    WrittenFile,
    write_sorted,
)
from sleeper.datafiles.write.sorted_file import is_one_file, write_sorted_file
from sleeper.schema.model import Schema
from sleeper.statestore.transactions.add_files import NewFile


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
