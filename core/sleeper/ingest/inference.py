"""Schemas of new tables like users' files, frames or Arrow data."""

from collections.abc import Sequence

import pyarrow as pa

from sleeper.datafiles.sources.files import find_source_files
from sleeper.datafiles.sources.table_inference import (
    InferredTable,
    TableRequest,
    infer_from_arrow,
    infer_from_files,
)
from sleeper.datafiles.validity import check_undamaged
from sleeper.instance import Instance
from sleeper.schema.model import Schema


def infer_from_paths(
    instance: Instance, paths: Sequence[str], request: TableRequest
) -> InferredTable:
    """Returns the schema of a table for the files, and what was found in them.

    InvalidRequestError if a file is missing or unreadable, or columns do not go together.
    """
    sources = instance.storage.sources
    named = [sources.open(sources.job_name(path)) for path in paths]
    return infer_from_files(find_source_files(named, request.options), request)


def infer_from_data(data: pa.Schema | pa.Table, request: TableRequest) -> Schema:
    """Returns the schema of a table for Arrow data. InvalidRequestError if it is damaged."""
    if isinstance(data, pa.Schema):
        return infer_from_arrow(data, None, request)
    for batch in data.to_batches():
        check_undamaged(batch)
    return infer_from_arrow(data.schema, data, request)
