"""Documents of a stash as Python values, parsed without Arrow.

JSON does not tell a decimal from a floating-point number, so the schema of the table does.
"""

from collections.abc import Callable
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


def _document_name(field: str) -> str:
    """Returns the name that a field of a table has in documents."""
    return _PREFIX + field if field.startswith(_PREFIX) else field


def document_columns(schema: Schema) -> tuple[str, ...]:
    """Returns the name that each field of a table has in documents.

    The only row key of a table with a document is `~id` itself if it has that name and text.
    """
    own = DOCUMENT_FIELDS[0]
    is_own = (
        schema.document is not None
        and len(schema.row_keys) == 1
        and (schema.row_keys[0].name, schema.row_keys[0].type) == (own.name, own.type)
    )
    first, *others = (_document_name(field.name) for field in schema.fields)
    return own.name if is_own else first, *others


def document_decoder(schema: Schema | None) -> Callable[[bytes], list[dict[str, Any]]]:
    """Returns the decoder of lines of documents. Decimals are exact if the schema is known."""
    decode = msgspec.json.Decoder(dict[str, Any]).decode_lines
    if schema is None or not any(_has_decimals(field.type) for field in schema.fields):
        return decode
    names = zip(document_columns(schema), schema.fields, strict=True)
    types = {name: _python_type(each.type) for name, each in names if _has_decimals(each.type)}
    make: Any = TypedDict
    decode_exact = msgspec.json.Decoder(make("document", types, total=False)).decode_lines

    def decode_both(lines: bytes) -> list[dict[str, Any]]:
        # A document has any members, which a decoder of some drops.
        both = zip(decode(lines), decode_exact(lines), strict=True)
        return [document | exact for document, exact in both]

    return decode_both


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
