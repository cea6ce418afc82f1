"""Rows and keys that callers pass: Arrow data, data frames or the paths of files."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from sleeper.api.records import read_records
from sleeper.errors import InvalidRequestError

FindSchema = Callable[[], pa.Schema]
Rows = Any
"""Rows to ingest: a PyArrow table, record batch or reader, an iterable of record batches or
tables, an object with the Arrow C stream interface (Polars, DuckDB), a pandas data frame, an
iterable of mappings from fields to values, or the path or paths of Parquet, CSV or JSON lines
files."""


def is_arrow_data(keys: object) -> bool:
    """Returns whether the keys are Arrow data or a data frame rather than lists of values."""
    first = keys[0] if isinstance(keys, list | tuple) and keys else keys
    return (
        isinstance(first, pa.RecordBatch | pa.Table)
        or hasattr(keys, "__arrow_c_stream__")
        or type(keys).__module__.partition(".")[0] == "pandas"
    )


def list_paths(rows: Rows) -> list[str] | None:
    """Returns the paths if the rows are those of files, otherwise `None`."""
    if isinstance(rows, str | Path):
        return [os.fspath(rows)]
    if isinstance(rows, list | tuple) and rows and all(isinstance(r, str | Path) for r in rows):
        return [os.fspath(r) for r in rows]
    return None


def read_batches(
    rows: Rows, find_schema: FindSchema | None = None, other_column: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields rows that are no paths, and raises InvalidRequestError for an unknown kind.

    `find_schema` returns the Arrow schema of rows that are mappings, which may have `other_column`
    too. Without it, they are an unknown kind.
    """
    if isinstance(rows, pa.RecordBatch):
        yield rows
    elif isinstance(rows, pa.Table):
        yield from rows.to_batches()
    elif type(rows).__module__.partition(".")[0] == "pandas":
        yield from pa.Table.from_pandas(rows, preserve_index=False).to_batches()
    elif hasattr(rows, "__arrow_c_stream__"):
        yield from pa.RecordBatchReader.from_stream(rows)
    elif isinstance(rows, Iterable) and not isinstance(rows, Mapping):
        remaining = iter(rows)
        for each in remaining:
            if find_schema is not None and isinstance(each, Mapping):
                records = chain([each], remaining)
                yield from read_records(records, find_schema(), other_column)
                return
            if not isinstance(each, pa.RecordBatch | pa.Table):
                raise InvalidRequestError(
                    f"unsupported rows: {type(each).__name__} (expected Arrow batches)"
                )
            yield from each.to_batches() if isinstance(each, pa.Table) else [each]
    else:
        raise InvalidRequestError(
            f"unsupported rows: {type(rows).__name__} (expected Arrow data, a list of mappings, or "
            "paths of files)"
        )
