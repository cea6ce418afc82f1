"""Local files of rows that wait to be sorted.

Rows without lists and maps are staged as Parquet, which the engine reads in batches of any size.
Others are staged as Arrow, because Parquet's levels of nested values take long: for a row with a
map, 230 processor nanoseconds to write and 120 to read, instead of 40 and 35.
"""

import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from sleeper.datafiles.arrow import arrow_schema
from sleeper.datafiles.engine.scan import ARROW_SUFFIX
from sleeper.schema.model import Schema

# The engine counts the memory of a whole batch for each part into which it divides the batch. So
# batches are no larger than those that it sorts.
_BATCH_ROWS = 8192
_BATCH_BYTES = 1024 * 1024


class ParquetStaging:
    """Writes a Parquet file."""

    def __init__(self, path: Path, kind: pa.Schema) -> None:
        self.path = path
        # Compression takes longer than the local disk.
        self._writer = pq.ParquetWriter(
            path, kind, compression="none", use_dictionary=False, write_statistics=False
        )

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Writes a batch."""
        self._writer.write_batch(batch)

    def close(self) -> None:
        """Ends the file."""
        self._writer.close()


class ArrowStaging:
    """Writes an Arrow file in batches of limited size. Small batches are combined."""

    def __init__(self, path: Path, kind: pa.Schema) -> None:
        self.path = path
        self._kind = kind
        self._small: list[pa.RecordBatch] = []
        self._small_rows = self._small_bytes = 0
        self._file = pa.OSFile(str(path), "wb")
        self._writer = ipc.new_file(self._file, kind)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Writes a batch, or keeps a small one."""
        self._small.append(batch)
        self._small_rows += batch.num_rows
        self._small_bytes += batch.nbytes
        if self._small_rows >= _BATCH_ROWS or self._small_bytes >= _BATCH_BYTES:
            self._flush()

    def close(self) -> None:
        """Writes the kept batches and ends the file."""
        with self._file:
            self._flush()
            self._writer.close()

    def _flush(self) -> None:
        if not self._small_rows:
            return
        rows = pa.concat_batches(self._small)
        fitting = _BATCH_BYTES * self._small_rows // max(self._small_bytes, 1)
        for start in range(0, len(rows), step := min(max(fitting, 1), _BATCH_ROWS)):
            self._writer.write_batch(rows.slice(start, step))
        self._small, self._small_rows, self._small_bytes = [], 0, 0


StagingWriter = ParquetStaging | ArrowStaging


def open_staging_file(schema: Schema, folder: Path) -> StagingWriter:
    """Creates a file in the folder for batches of the table's Arrow schema."""
    kind = arrow_schema(schema)
    if any(pa.types.is_nested(field.type) for field in kind):
        return ArrowStaging(folder / f"{uuid.uuid4().hex}{ARROW_SUFFIX}", kind)
    return ParquetStaging(folder / f"{uuid.uuid4().hex}.parquet", kind)
