"""Documents of a stash in Parquet. A read that loses its connection resumes where it was."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from sleeper.datafiles.arrow import arrow_schema
from sleeper.errors import DataError, NotFoundError
from sleeper.schema.model import Schema
from sleeper.stash.documents import document_lines, end_lines
from sleeper.stash.files import StashFiles
from sleeper.stash.resuming import ResumingFile

_BATCH_ROWS = 16_384


def read_batches(files: StashFiles, path: str, fields: Schema) -> Iterator[pa.RecordBatch]:
    """Yields the documents of a file, with the fields that `document_fields` returned.

    NotFoundError if the file does not exist, DataError if it is damaged.
    """
    target, where = arrow_schema(fields), files.url_of(path)
    try:
        with ResumingFile(files.open_ranges(path)) as content:
            source = pa.PythonFile(content, mode="r")
            file = pq.ParquetFile(source, page_checksum_verification=True)
            if not file.schema_arrow.equals(target):
                raise DataError(f"{where} is damaged: it does not have the fields of its table")
            # One row group at a time, because all that are requested are read ahead.
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(_BATCH_ROWS, [group], use_threads=False):
                    if batch.num_rows:
                        yield batch.cast(target)
    except FileNotFoundError as error:
        raise NotFoundError(f"{where} does not exist (was its stash deleted?)") from error
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{where} is damaged: {error}") from error


def read_lines(files: StashFiles, path: str, fields: Schema) -> Iterator[bytes]:
    """Yields the documents of a file as lines of JSON, blocks of whole lines at once."""
    for batch in read_batches(files, path, fields):
        yield end_lines(document_lines(batch)).to_pybytes()
