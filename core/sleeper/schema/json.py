"""Schema JSON (docs/formats.md, "Schema JSON")."""

import json
from typing import Any

from sleeper.errors import InvalidRequestError
from sleeper.schema.model import (
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
)

_PRIMITIVES = {t.value: t for t in PrimitiveType}
_MAX_DECIMAL_PRECISION = 38


def schema_from_json(text: str) -> Schema:
    """Parses schema JSON; InvalidRequestError names the member that is wrong."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"schema is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise InvalidRequestError("schema must be a JSON object with rowKeyFields")
    return Schema(
        row_keys=_fields(raw, "rowKeyFields", nullable_allowed=False),
        sort_keys=_fields(raw, "sortKeyFields", nullable_allowed=False),
        values=_fields(raw, "valueFields", nullable_allowed=True),
    )


def schema_to_json(schema: Schema) -> str:
    """Returns compact schema JSON; `nullable` is left out when false."""
    return json.dumps(
        {
            "rowKeyFields": [_field_to_raw(f) for f in schema.row_keys],
            "sortKeyFields": [_field_to_raw(f) for f in schema.sort_keys],
            "valueFields": [_field_to_raw(f) for f in schema.values],
        },
        separators=(",", ":"),
    )


def _fields(raw: dict[str, Any], member: str, nullable_allowed: bool) -> tuple[Field, ...]:
    entries = raw.get(member) or []
    if not isinstance(entries, list):
        raise InvalidRequestError(f"schema member {member} must be a list of fields")
    return tuple(
        _field(entry, f"{member}[{i}]", nullable_allowed) for i, entry in enumerate(entries)
    )


def _field(raw: Any, where: str, nullable_allowed: bool) -> Field:
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
        raise InvalidRequestError(f'schema {where} must be an object with a "name" and a "type"')
    nullable = raw.get("nullable", False)
    if not isinstance(nullable, bool):
        raise InvalidRequestError(f"schema {where} ({raw['name']}): nullable must be true or false")
    if nullable and not nullable_allowed:
        raise InvalidRequestError(f"schema {where} ({raw['name']}): key fields cannot be nullable")
    return Field(raw["name"], _type(raw.get("type"), f"{where} ({raw['name']})"), nullable)


def _type(raw: Any, where: str) -> FieldType:
    if isinstance(raw, dict) and len(raw) == 1:
        (name, body), *_ = raw.items()
        if isinstance(body, dict):
            if name == "ListType":
                return ListType(_element_type(body.get("elementType"), where))
            if name == "MapType":
                return MapType(
                    _element_type(body.get("keyType"), where),
                    _element_type(body.get("valueType"), where),
                )
    return _element_type(raw, where)


def _element_type(raw: Any, where: str) -> PrimitiveType | DecimalType:
    if isinstance(raw, str) and raw in _PRIMITIVES:
        return _PRIMITIVES[raw]
    if (
        isinstance(raw, dict)
        and list(raw) == ["DecimalType"]
        and isinstance(raw["DecimalType"], dict)
    ):
        precision, scale = raw["DecimalType"].get("precision"), raw["DecimalType"].get("scale")
        if (
            isinstance(precision, int)
            and isinstance(scale, int)
            and 1 <= precision <= _MAX_DECIMAL_PRECISION
            and 0 <= scale <= precision
        ):
            return DecimalType(precision, scale)
        raise InvalidRequestError(
            f"schema {where}: DecimalType needs precision 1 to {_MAX_DECIMAL_PRECISION} "
            f"and scale 0 to precision, not {precision!r} and {scale!r}"
        )
    known = ", ".join([*_PRIMITIVES, "ListType", "MapType", "DecimalType"])
    raise InvalidRequestError(f"schema {where}: unknown type {raw!r}; types are {known}")


def _field_to_raw(field: Field) -> dict[str, Any]:
    raw: dict[str, Any] = {"name": field.name, "type": _type_to_raw(field.type)}
    if field.nullable:
        raw["nullable"] = True
    return raw


def _type_to_raw(field_type: FieldType) -> Any:
    match field_type:
        case PrimitiveType():
            return field_type.value
        case DecimalType(precision, scale):
            return {"DecimalType": {"precision": precision, "scale": scale}}
        case ListType(element):
            return {"ListType": {"elementType": _type_to_raw(element)}}
        case MapType(key, value):
            return {"MapType": {"keyType": _type_to_raw(key), "valueType": _type_to_raw(value)}}
