"""Samples of keys from a data file whose sidecar is missing, torn or too coarse.

Only row groups whose statistics touch the region are read, at most so many of them,
evenly spaced, and of these only the key columns.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.datafiles.sidecars.file_check import verify_end
from sleeper.datafiles.write.key_facts import KeySampler
from sleeper.datafiles.write.route import rows_in_region
from sleeper.errors import DataError, StateMovedOnError, classify_error
from sleeper.files import DataFile
from sleeper.partitions.region import Region
from sleeper.schema.model import KeyValue, Schema
from sleeper.splitting.estimate import FileKeys
from sleeper.storage.location import DataRoot

_ROW_GROUPS_MAX = 64
_BATCH_ROWS = 65_536


def sample_keys(root: DataRoot, schema: Schema, file: DataFile, region: Region) -> FileKeys:
    """Samples the keys of the file's rows in the region. `rows` is exact if all are read.

    DataError if the file cannot be read, StateMovedOnError if it is gone.
    """
    sampler = KeySampler(schema)
    try:
        verify_end(root, file.path)
        with (
            root.open(file.path, file.bytes) as content,
            pq.ParquetFile(content, page_checksum_verification=True, pre_buffer=False) as parquet,
        ):
            groups = _row_groups_touching(parquet.metadata, region)
            read = _evenly_spaced(groups)
            rows = _sample(parquet, read, schema, region, sampler)
        points = tuple(tuple(_in_order(values)) for values in sampler.samples())
    except FileNotFoundError as error:
        raise StateMovedOnError(f"data file {file.path} is gone") from error
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError) as error:
        raise classify_error(
            error, f"data file {file.path} cannot be read: {error}", DataError
        ) from error
    scale = len(groups) / len(read) if read else 0.0
    return FileKeys(rows * scale, points)


def _in_order(values: list[KeyValue]) -> list[KeyValue]:
    return sorted(values)


def _sample(
    parquet: pq.ParquetFile,
    groups: Sequence[int],
    schema: Schema,
    region: Region,
    sampler: KeySampler,
) -> int:
    rows = 0
    names = [f.name for f in schema.row_keys]
    for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=list(groups), columns=names):
        # The columns of the file may be in another order.
        keys = pa.RecordBatch.from_arrays([batch.column(n) for n in names], names)
        inside = rows_in_region(keys, names, region)
        rows += inside.num_rows
        if inside.num_rows:
            sampler.add(inside)
    return rows


def _row_groups_touching(metadata: pq.FileMetaData, region: Region) -> list[int]:
    """Returns the row groups that may have rows of the region."""
    groups = range(metadata.num_row_groups)
    return [g for g in groups if _touches(metadata.row_group(g), region)]


def _touches(group: pq.RowGroupMetaData, region: Region) -> bool:
    # The row key fields are a file's first columns.
    for place, within in enumerate(region.ranges):
        found = group.column(place).statistics
        if (
            found is not None
            and found.has_min_max
            and type(found.min) is type(within.min)
            and not within.overlaps_values(found.min, found.max)
        ):
            return False
    return True


def _evenly_spaced(groups: Sequence[int]) -> list[int]:
    if len(groups) <= _ROW_GROUPS_MAX:
        return list(groups)
    return [groups[i * len(groups) // _ROW_GROUPS_MAX] for i in range(_ROW_GROUPS_MAX)]
