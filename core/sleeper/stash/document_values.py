"""Documents of a stash as Python values, parsed without Arrow.

JSON does not tell a decimal from a floating-point number, so the schema of the table does.
"""

from decimal import Decimal
from typing import Any, TypedDict

import msgspec

from sleeper.schema.model import (
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
)

_PREFIX = "~"
DOCUMENT_FIELDS = (
    Field("~id", PrimitiveType.STRING),
    Field("~table", PrimitiveType.STRING),
    Field("~version", PrimitiveType.LONG),
    Field("~signature", PrimitiveType.STRING),
    Field("~deleted", PrimitiveType.BOOLEAN),
    Field("~firstUpdateAt", PrimitiveType.TIMESTAMP),
    Field("~lastUpdateAt", PrimitiveType.TIMESTAMP),
)
"""The fields of a document that are not those of its row. The first one begins the columns."""


def document_name(field: str) -> str:
    """Returns the name that a field of a table has in documents."""
    return _PREFIX + field if field.startswith(_PREFIX) else field


def document_decoder(schema: Schema | None) -> "msgspec.json.Decoder[Any]":
    """Returns the decoder of documents. Decimals are exact if the schema is known."""
    if schema is None or not any(_has_decimals(field.type) for field in schema.fields):
        return msgspec.json.Decoder()
    types: dict[str, Any] = {field.name: Any for field in DOCUMENT_FIELDS}
    types |= {document_name(field.name): _python_type(field.type) for field in schema.fields}
    make: Any = TypedDict
    return msgspec.json.Decoder(make("document", types, total=False))


def _has_decimals(kind: FieldType) -> bool:
    match kind:
        case DecimalType():
            return True
        case ListType():
            return _has_decimals(kind.element)
        case MapType():
            # The keys of a map are text in JSON.
            return _has_decimals(kind.value)
        case _:
            return False


def _python_type(kind: FieldType) -> Any:
    """Returns the type of values, which may be null."""
    match kind:
        case DecimalType():
            return Decimal | None
        case ListType() if _has_decimals(kind):
            return list[_python_type(kind.element)] | None  # type: ignore[misc]
        case MapType() if _has_decimals(kind):
            return dict[str, _python_type(kind.value)] | None  # type: ignore[misc]
        case _:
            return Any
