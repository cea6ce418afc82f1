"""Rows of a user's file of any format."""

from collections.abc import Iterator

import pyarrow as pa

from sleeper.datafiles.sources.files import RowChecker, SourceFormat, source_format
from sleeper.datafiles.sources.parquet import read_parquet
from sleeper.datafiles.sources.text import read_csv, read_json_lines
from sleeper.storage.bucket_folder import SourceFile


def read_file(path: SourceFile, checker: RowChecker) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file, whose name ends in its format, checked and cast."""
    match source_format(path):
        case SourceFormat.PARQUET:
            return read_parquet(path, checker)
        case SourceFormat.CSV:
            return read_csv(path, checker)
        case SourceFormat.JSON_LINES:
            return read_json_lines(path, checker)
