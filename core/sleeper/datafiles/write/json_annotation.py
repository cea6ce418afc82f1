"""Parquet's annotation of columns of JSON in files of the engine, which writes them as plain text.

The annotation is a part of the schema in the footer (Parquet format, `SchemaElement`). Offsets in a
footer are those of pages, so another footer may follow the same pages.
"""

import io
from collections.abc import Collection
from pathlib import Path
from struct import pack
from typing import BinaryIO

from sleeper.datafiles.engine.parquet_footer import MAGIC, TAIL_BYTES, footer_length
from sleeper.datafiles.engine.thrift import (
    BINARY,
    INT32,
    STRUCT,
    Structure,
    integer,
    read_list_head,
    read_structure,
    text,
)
from sleeper.errors import DataError
from sleeper.schema.model import PrimitiveType, Schema
from sleeper.storage.disk import write_error

_TYPE, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _FIELD_ID, _LOGICAL = 1, 3, 4, 5, 6, 9, 10
_CONVERTED_JSON, _LOGICAL_JSON = 19, 12
_STOP = b"\0"


def annotate_json(path: Path, schema: Schema) -> None:
    """Marks the columns of `JSONType` in the footer of a local file.

    Raises only errors of `sleeper.errors`.
    """
    names = {f.name.encode() for f in schema.fields if f.type is PrimitiveType.JSON}
    if not names:
        return
    try:
        with path.open("r+b") as file:
            _annotate(file, names)
    except OSError as error:
        raise write_error(path, error) from error


def _annotate(file: BinaryIO, names: Collection[bytes]) -> None:
    tail = file.seek(-TAIL_BYTES, io.SEEK_END)
    length = footer_length(file.read())
    start = file.seek(tail - length)
    footer = annotated_footer(file.read(length), names)
    file.seek(start)
    file.write(footer + pack("<I", len(footer)) + MAGIC)
    file.truncate()


def annotated_footer(footer: bytes, names: Collection[bytes]) -> bytes:
    """Returns a footer whose columns of these names are JSON. DataError if it lacks one."""
    _, start = read_structure(footer, last=1)
    # The field of the schema follows that of the version.
    if footer[start] != (1 << 4 | 9):
        raise DataError("the footer has no schema after its version")
    count, _, at = read_list_head(footer, start + 1)
    elements, marked, below = [footer[:at]], 0, 0
    for index in range(count):
        element, end = read_structure(footer, at)
        is_column = index > 0 and not below
        below += element.get(_CHILDREN, 0) - (not is_column) if index else 0
        if is_column and element[_NAME] in names:
            elements.append(_encode(element))
            marked += 1
        else:
            elements.append(footer[at:end])
        at = end
    if marked != len(names):
        raise DataError(f"the footer has {marked} columns of JSON (expected {len(names)})")
    return b"".join((*elements, footer[at:]))


def _encode(element: Structure) -> bytes:
    values = (
        (_TYPE, INT32, integer(element[_TYPE])),
        (_REPETITION, INT32, integer(element[_REPETITION])),
        (_NAME, BINARY, text(element[_NAME])),
        (_CONVERTED, INT32, integer(_CONVERTED_JSON)),
        (_FIELD_ID, INT32, integer(element[_FIELD_ID])),
        (_LOGICAL, STRUCT, bytes([_LOGICAL_JSON << 4 | STRUCT]) + _STOP + _STOP),
    )
    parts, last = [], 0
    for number, kind, value in values:
        parts += [bytes([(number - last) << 4 | kind]), value]
        last = number
    return b"".join((*parts, _STOP))
