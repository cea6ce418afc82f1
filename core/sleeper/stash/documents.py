"""Rows as documents of a stash, a JSON object each, made of whole columns.

A document has the fields of its row, as docs/formats.md specifies for rows in JSON, and then those
of the stash, whose names begin with `~`. A field of the table whose name begins with `~` gets one
more.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import functions

from sleeper.clock import iso_time
from sleeper.datafiles.engine.columns import map_column
from sleeper.query.rows.json_text import json_lines, json_values, plain_text
from sleeper.schema.model import Field, PrimitiveType, Schema

_PREFIX = "~"
_TO_QUOTE = r'[",\r\n]'
_DOCUMENT_FIELDS = (
    Field("~id", PrimitiveType.STRING),
    Field("~table", PrimitiveType.STRING),
    Field("~version", PrimitiveType.LONG),
    Field("~signature", PrimitiveType.STRING),
    Field("~deleted", PrimitiveType.BOOLEAN),
    Field("~firstUpdateAt", PrimitiveType.TIMESTAMP),
    Field("~lastUpdateAt", PrimitiveType.TIMESTAMP),
)

TimesOf = Callable[[Sequence[int]], Sequence[int]]
"""Returns the time in milliseconds of each transaction number."""


def document_name(field: str) -> str:
    """Returns the name that a field of a table has in documents."""
    return _PREFIX + field if field.startswith(_PREFIX) else field


def document_fields(schema: Schema) -> Schema:
    """Returns the fields of a table's documents."""
    values = [Field(document_name(f.name), f.type, f.nullable) for f in schema.fields]
    # Documents have no order by key, and no field is a key.
    return Schema(_DOCUMENT_FIELDS[:1], (), (*values, *_DOCUMENT_FIELDS[1:]))


class DocumentWriter:
    """Makes documents of a table's rows. `times_of` is called once for each number."""

    def __init__(self, table: str, schema: Schema, times_of: TimesOf) -> None:
        self._names = [document_name(f.name) for f in schema.fields]
        self._keys = len(schema.row_keys)
        self._table = json_values(pa.array([table]))[0].as_py()
        self._times_of = times_of
        self._times: dict[int, str] = {}

    def documents(self, rows: pa.RecordBatch, numbers: pa.Array) -> pa.Array:
        """Returns a line of JSON, without its end, for each row and its transaction number."""
        content = json_lines(rows.rename_columns(self._names))
        members = pc.binary_replace_slice(content, -1, 2**31 - 1, "")
        time = self._time_texts(numbers)
        return pc.binary_join_element_wise(
            members,
            ',"~id":',
            json_values(self._ids(rows)),
            f',"~table":{self._table},"~version":',
            numbers.cast(pa.string()),
            ',"~signature":"',
            map_column(content, functions.md5, pa.string()),
            '","~deleted":false,"~firstUpdateAt":"',
            time,
            '","~lastUpdateAt":"',
            time,
            '"}',
            "",
        )

    def _ids(self, rows: pa.RecordBatch) -> pa.Array:
        """Returns the row key as text; of several fields, as a line of CSV."""
        texts = [plain_text(rows.column(place)) for place in range(self._keys)]
        return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*map(_csv, texts), ",")

    def _time_texts(self, numbers: pa.Array) -> pa.Array:
        distinct, places = np.unique(numbers.to_numpy(), return_inverse=True)
        unknown = [number for number in distinct.tolist() if number not in self._times]
        if unknown:
            times = map(iso_time, self._times_of(unknown))
            self._times.update(zip(unknown, times, strict=True))
        texts = pa.array([self._times[number] for number in distinct.tolist()], pa.string())
        return texts.take(pa.array(places))


def _csv(text: pa.Array) -> pa.Array:
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(text, '"', '""'), '"', "")
    return pc.if_else(pc.match_substring_regex(text, _TO_QUOTE), quoted, text)
