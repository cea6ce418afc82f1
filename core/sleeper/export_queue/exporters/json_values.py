"""Exports as JSON, whole columns at a time.

An export is the object {"queue": ..., "bucket": ..., "key": ..., "value": ..., "sequence": ...}.
`key` is the value of the key field, or a list if the queue has several. `value` is an object, or
null if the key is gone. Values are written as in docs/formats.md, "Rows in JSON".
"""

import json

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.json_text import json_lines, json_values, plain_text
from sleeper.export_queue.definition import SEQUENCE, TOMBSTONE
from sleeper.export_queue.exporter import ExportBatch


def key_texts(batch: ExportBatch) -> pa.Array:
    """Returns each export's key as plain text: bytes are base64, several fields a JSON list."""
    keys = _keys(batch)
    return plain_text(keys[0]) if len(keys) == 1 else _json_keys(batch)


def export_texts(batch: ExportBatch) -> pa.Array:
    """Returns each export as the text of a JSON object."""
    start = f'{{"queue":{json.dumps(batch.queue.name)},"bucket":{batch.bucket},"key":'
    value = _value_texts(batch)
    sequence = batch.rows.column(SEQUENCE).cast(pa.string())
    parts = (start, _json_keys(batch), ',"value":', value, ',"sequence":', sequence, "}")
    return pc.binary_join_element_wise(*parts, "")


def document_texts(batch: ExportBatch) -> pa.Array:
    """Returns a JSON object of keys, values and `sequence` per export. Values may be null."""
    names = [each.name for each in (*batch.queue.keys, *batch.queue.values)]
    return json_lines(batch.rows.select([*names, SEQUENCE]))


def _value_texts(batch: ExportBatch) -> pa.Array:
    if batch.queue.values:
        text = json_lines(batch.rows.select([each.name for each in batch.queue.values]))
    else:
        text = pa.repeat("{}", len(batch))
    return pc.if_else(batch.rows.column(TOMBSTONE), "null", text)


def _json_keys(batch: ExportBatch) -> pa.Array:
    keys = [json_values(column) for column in _keys(batch)]
    if len(keys) == 1:
        return keys[0]
    return pc.binary_join_element_wise("[", pc.binary_join_element_wise(*keys, ","), "]", "")


def _keys(batch: ExportBatch) -> list[pa.Array]:
    return [batch.rows.column(each.name) for each in batch.queue.keys]
