"""Delete files: the positions of the rows of a data file that a version does not show.

Rows are sorted by key, so those of other partitions are a few runs, which take few bytes.
"""

import io
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.datafiles.arrow import FIELD_ID
from sleeper.datafiles.key_files import KeyFileCache
from sleeper.datafiles.merge.deletes import DeletedRows, open_deleted
from sleeper.errors import DataError, classify_error
from sleeper.iceberg.file_rows import FileRows
from sleeper.schema.model import DELETED_COLUMN, Schema
from sleeper.storage.location import DataRoot

FILE_PATH_ID = 2_147_483_546
"""The id of the column of URLs of a delete file, which Iceberg reserves like that of positions."""
_POSITION_ID = 2_147_483_545
_BATCH_ROWS = 65_536

_COLUMNS = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {FIELD_ID: str(FILE_PATH_ID)}),
        pa.field("pos", pa.int64(), False, {FIELD_ID: str(_POSITION_ID)}),
    ]
)

Positions = npt.NDArray[np.int64]


def find_hidden(
    rows: FileRows, schema: Schema, root: DataRoot, key_files: KeyFileCache
) -> Iterator[Positions]:
    """Yields the ascending positions of the hidden rows of a file, in bounded memory.

    StateMovedOnError if the file of a delete is gone, NotFoundError if the data file is.
    """
    inside = None if rows.regions is None else DeletedRows(schema, rows.regions)
    deletes = [(each.region, each.keys) for each in rows.deletes]
    deleted = open_deleted(schema, deletes, root, key_files) if deletes else None
    names = [field.name for field in schema.row_keys]
    start = 0
    optional = [DELETED_COLUMN] if rows.may_have_tombstones else []
    for batch in _read_columns(rows.file.path, names, optional, root):
        keys = batch.columns[: len(names)]
        hidden = np.zeros(batch.num_rows, np.bool_)
        if inside is not None:
            hidden |= _as_numpy(inside.keep(*keys))
        if deleted is not None:
            hidden |= ~_as_numpy(deleted.keep(*keys))
        for tombstones in batch.columns[len(names) :]:
            hidden |= _as_numpy(tombstones.fill_null(False))
        yield np.flatnonzero(hidden) + start
        start += batch.num_rows
    if start != rows.file.rows:
        raise DataError(f"file {rows.file.path} has {start} rows: the state says {rows.file.rows}")


def _read_columns(
    path: str, names: list[str], optional: list[str], root: DataRoot
) -> Iterator[pa.RecordBatch]:
    """Yields the columns of the names, and those of the optional names that the file has."""
    try:
        with root.open(path) as source, pq.ParquetFile(source) as file:
            read = [*names, *(name for name in optional if name in file.schema_arrow.names)]
            for batch in file.iter_batches(_BATCH_ROWS, columns=read):
                yield batch.select(read)
    except (pa.ArrowException, OSError) as error:
        raise classify_error(error, f"file {path} cannot be read: {error}", DataError) from error


def _as_numpy(mask: Any) -> npt.NDArray[np.bool_]:
    values: npt.NDArray[np.bool_] = mask.to_numpy(zero_copy_only=False)
    return values


def encode_delete_file(data_url: str, hidden: Iterator[Positions]) -> tuple[bytes, int]:
    """Returns the content of a delete file of a data file, and the number of positions."""
    sink, count = io.BytesIO(), 0
    with pq.ParquetWriter(
        sink,
        _COLUMNS,
        compression="zstd",
        use_dictionary=["file_path"],
        column_encoding={"pos": "DELTA_BINARY_PACKED"},
        store_schema=False,
    ) as writer:
        for positions in hidden:
            if len(positions):
                urls = pa.repeat(data_url, len(positions))
                writer.write_batch(pa.record_batch([urls, pa.array(positions)], schema=_COLUMNS))
                count += len(positions)
    return sink.getvalue(), count


def delete_file_name(signature: str) -> str:
    """Returns a new name of a delete file of rows with the signature."""
    return f"{signature}-{uuid.uuid4().hex[:12]}.parquet"


def has_signature(url: str, signature: str) -> bool:
    """Returns whether a delete file is of rows with the signature."""
    return url.rpartition("/")[2].partition("-")[0] == signature
