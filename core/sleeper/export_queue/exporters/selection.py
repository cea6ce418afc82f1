"""The rows of a batch that a receiver needs: the newest of each key, without refused ones."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.export_queue.definition import ExportQueue


def newest_rows(queue: ExportQueue, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the last row of each key. The rows are in order of key and then sequence."""
    if rows.num_rows < 2:
        return rows
    is_last = np.zeros(rows.num_rows, np.bool_)
    is_last[-1] = True
    for key in queue.keys:
        column = rows.column(key.name)
        changes = pc.not_equal(column[:-1], column[1:])
        is_last[:-1] |= changes.to_numpy(zero_copy_only=False)
    return rows.filter(pa.array(is_last))


def leave_out(rows: pa.RecordBatch, refused: Mapping[int, str]) -> pa.RecordBatch:
    """Returns the rows without those at the positions."""
    if not refused:
        return rows
    is_kept = np.ones(rows.num_rows, np.bool_)
    is_kept[list(refused)] = False
    return rows.filter(pa.array(is_kept))
