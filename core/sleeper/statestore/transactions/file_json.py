"""Keys, data files and partitions as the log writes them.

Self-describing, so that the log is read without the schema: bytes are `{"b": base64}`.
"""

import base64
from typing import Any

from sleeper.files.data_file import DataFile
from sleeper.partitions.partition import Partition
from sleeper.partitions.region import Range, Region
from sleeper.schema.model import Key, KeyValue


def value_to_json(value: KeyValue | None) -> Any:
    return {"b": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def value_from_json(raw: Any) -> Any:
    return base64.b64decode(raw["b"]) if isinstance(raw, dict) else raw


def key_to_json(key: Key) -> list[Any]:
    return [value_to_json(v) for v in key]


def key_from_json(raw: list[Any]) -> Key:
    return tuple(value_from_json(v) for v in raw)


def file_to_json(file: DataFile) -> dict[str, Any]:
    """Without the numbers of its content, which the state store gives."""
    raw: dict[str, Any] = {
        "path": file.path,
        "rows": file.rows,
        "bytes": file.bytes,
        "smallest": key_to_json(file.smallest_key),
        "largest": key_to_json(file.largest_key),
        "schema": file.schema_version,
    }
    if file.sidecars:
        raw["sidecars"] = list(file.sidecars)
    return raw


def file_from_json(raw: dict[str, Any]) -> DataFile:
    return DataFile(
        raw["path"],
        raw["rows"],
        raw["bytes"],
        key_from_json(raw["smallest"]),
        key_from_json(raw["largest"]),
        raw["schema"],
        tuple(raw.get("sidecars", ())),
    )


def partition_to_json(partition: Partition) -> dict[str, Any]:
    return {
        "id": partition.id,
        "parent": partition.parent_id,
        "leaf": partition.is_leaf,
        "ranges": [[value_to_json(r.min), value_to_json(r.max)] for r in partition.region.ranges],
    }


def partition_from_json(raw: dict[str, Any]) -> Partition:
    ranges = (Range(value_from_json(low), value_from_json(high)) for low, high in raw["ranges"])
    return Partition(raw["id"], Region(tuple(ranges)), raw["parent"], raw["leaf"])
