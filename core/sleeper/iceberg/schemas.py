"""Schemas of tables as Iceberg's: types, sort order, and names of fields in files without ids."""

import json
from collections.abc import Iterable
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.schema.field_ids import element_id, value_id
from sleeper.schema.model import (
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    type_name,
)

SORT_ORDER_ID = 1

_TYPES = {
    PrimitiveType.INT: "int",
    PrimitiveType.LONG: "long",
    PrimitiveType.STRING: "string",
    PrimitiveType.BYTE_ARRAY: "binary",
    PrimitiveType.BOOLEAN: "boolean",
    PrimitiveType.FLOAT: "float",
    PrimitiveType.DOUBLE: "double",
    PrimitiveType.TIMESTAMP: "timestamptz",
    PrimitiveType.DATE: "date",
    # Its text. Iceberg's variant is of format version 3.
    PrimitiveType.JSON: "string",
}


def schema_to_iceberg(schema: Schema) -> dict[str, Any]:
    """Returns Iceberg's JSON of a schema. Its id is the version of the schema."""
    fields = [
        {
            "id": field.id,
            "name": field.name,
            "required": not field.nullable,
            "type": _type_to_iceberg(field.type, field.id),
        }
        for field in schema.fields
    ]
    return {"type": "struct", "schema-id": schema.version, "fields": fields}


def _type_to_iceberg(kind: FieldType, field_id: int) -> Any:
    match kind:
        case DecimalType(precision, scale):
            return f"decimal({precision}, {scale})"
        case ListType(element):
            return {
                "type": "list",
                "element-id": element_id(field_id),
                "element": _type_to_iceberg(element, 0),
                "element-required": True,
            }
        case MapType(key, value):
            return {
                "type": "map",
                "key-id": element_id(field_id),
                "key": _type_to_iceberg(key, 0),
                "value-id": value_id(field_id),
                "value": _type_to_iceberg(value, 0),
                "value-required": True,
            }
    if kind not in _TYPES:
        raise InvalidRequestError(f"Iceberg has no type for {type_name(kind)}")
    return _TYPES[kind]


def last_column_id(schemas: Iterable[Schema]) -> int:
    """Returns the largest id of a field or element of the schemas."""
    return max(value_id(field.id) for schema in schemas for field in schema.fields)


def sort_order(schema: Schema) -> dict[str, Any]:
    """Returns Iceberg's JSON of the order of rows in data files."""
    fields = [
        {
            "transform": "identity",
            "source-id": field.id,
            "direction": "asc",
            "null-order": "nulls-first",
        }
        for field in schema.keys
    ]
    return {"order-id": SORT_ORDER_ID, "fields": fields}


def name_mapping(schema: Schema) -> str | None:
    """Returns Iceberg's JSON of the names of fields in files without ids.

    None if fields of the table's history share a name: without a mapping, readers refuse files
    without ids, instead of taking one field for another.
    """
    names: dict[int, list[str]] = {}
    owners: dict[str, int] = {}
    for each in (*schema.earlier, schema):
        for field in each.fields:
            if owners.setdefault(field.name, field.id) != field.id:
                return None
            if field.name not in names.setdefault(field.id, []):
                names[field.id].append(field.name)
    return json.dumps([_mapped(field, names[field.id]) for field in schema.fields])


def _mapped(field: Field, names: list[str]) -> dict[str, Any]:
    mapped: dict[str, Any] = {"field-id": field.id, "names": names}
    match field.type:
        case ListType():
            mapped["fields"] = [
                {"field-id": element_id(field.id), "names": ["element", *names]},
            ]
        case MapType():
            mapped["fields"] = [
                {"field-id": element_id(field.id), "names": ["key"]},
                {"field-id": value_id(field.id), "names": ["value"]},
            ]
    return mapped
