"""The Avro schemas of Iceberg's manifests and lists of manifests, format version 2.

Numbers are the ids of the specification's fields. Fields that are never written are left out.
"""

from typing import Any


def _field(name: str, field_id: int, kind: Any, is_required: bool = True) -> dict[str, Any]:
    if is_required:
        return {"name": name, "field-id": field_id, "type": kind}
    return {"name": name, "field-id": field_id, "type": ["null", kind], "default": None}


def _record(name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields}


def _map(key_id: int, value_id: int, value: str) -> dict[str, Any]:
    """Returns the type of a map with numbers as keys, which Avro has as a list of entries."""
    fields = [_field("key", key_id, "int"), _field("value", value_id, value)]
    entry = _record(f"k{key_id}_v{value_id}", fields)
    return {"type": "array", "logicalType": "map", "items": entry}


_DATA_FILE = _record(
    "r2",
    [
        _field("content", 134, "int"),
        _field("file_path", 100, "string"),
        _field("file_format", 101, "string"),
        _field("partition", 102, _record("r102", [])),
        _field("record_count", 103, "long"),
        _field("file_size_in_bytes", 104, "long"),
        _field("null_value_counts", 110, _map(121, 122, "long"), is_required=False),
        _field("lower_bounds", 125, _map(126, 127, "bytes"), is_required=False),
        _field("upper_bounds", 128, _map(129, 130, "bytes"), is_required=False),
        _field("sort_order_id", 140, "int", is_required=False),
        _field("referenced_data_file", 143, "string", is_required=False),
    ],
)

MANIFEST_ENTRY = _record(
    "manifest_entry",
    [
        _field("status", 0, "int"),
        _field("snapshot_id", 1, "long", is_required=False),
        _field("sequence_number", 3, "long", is_required=False),
        _field("file_sequence_number", 4, "long", is_required=False),
        _field("data_file", 2, _DATA_FILE),
    ],
)

MANIFEST_FILE = _record(
    "manifest_file",
    [
        _field("manifest_path", 500, "string"),
        _field("manifest_length", 501, "long"),
        _field("partition_spec_id", 502, "int"),
        _field("content", 517, "int"),
        _field("sequence_number", 515, "long"),
        _field("min_sequence_number", 516, "long"),
        _field("added_snapshot_id", 503, "long"),
        _field("added_files_count", 504, "int"),
        _field("existing_files_count", 505, "int"),
        _field("deleted_files_count", 506, "int"),
        _field("added_rows_count", 512, "long"),
        _field("existing_rows_count", 513, "long"),
        _field("deleted_rows_count", 514, "long"),
    ],
)
