"""Schemas of new tables like files, frames or Arrow data that callers pass."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sleeper.api.rows import is_arrow_data, list_paths
from sleeper.datafiles.sources.table_inference import TableRequest
from sleeper.errors import InvalidRequestError
from sleeper.ingest.inference import infer_from_data, infer_from_paths
from sleeper.instance import Instance as Ports
from sleeper.schema.model import FieldType, Schema
from sleeper.schema.type_text import parse_type
from sleeper.storage.source_options import SourceOptions


def infer_schema(
    instance: Ports,
    like: Any,
    key: str | Sequence[str],
    sort: str | Sequence[str],
    types: Mapping[str, FieldType | str] | None,
    options: SourceOptions,
) -> Schema:
    """Returns the schema of a table for paths, a frame, Arrow data or an Arrow schema."""
    kinds = {
        name: parse_type(kind) if isinstance(kind, str) else kind
        for name, kind in (types or {}).items()
    }
    request = TableRequest(_names(key), _names(sort), kinds, options)
    paths = list_paths(like)
    if paths is not None:
        return infer_from_paths(instance, paths, request).schema
    return infer_from_data(_to_arrow(like), request)


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _to_arrow(like: Any) -> pa.Schema | pa.Table:
    if isinstance(like, pa.Schema | pa.Table):
        return like
    if isinstance(like, pa.RecordBatchReader):
        return like.schema  # its batches can be read once, and are left to the caller
    if isinstance(like, pa.RecordBatch):
        return pa.Table.from_batches([like])
    if type(like).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(like, preserve_index=False)
    if is_arrow_data(like):
        return pa.table(like)
    if hasattr(like, "__arrow_c_schema__"):
        return pa.schema(like)
    raise InvalidRequestError(
        f"unsupported rows: {type(like).__name__} (expected paths of files, a frame, Arrow data or "
        "an Arrow schema)"
    )
