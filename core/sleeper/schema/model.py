"""Field types, fields and the schema, with their JSON (docs/formats.md, "Schema JSON")."""

import dataclasses
import itertools
import json
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Annotated, Any

from sleeper.errors import DataError, InvalidRequestError
from sleeper.json_codec import Conversion, JsonCodec, Member, MismatchError

KeyValue = int | str | bytes
"""A value of a key field, in the form that sorts: str, bytes, or int for every other type.

It is the number of microseconds since 1970 for TimestampType, of days since 1970 for DateType, 0 or
1 for BooleanType, and of units of the last decimal place for DecimalType.
`sleeper.schema.key_values` converts values of users.
"""

Key = tuple[KeyValue, ...]
"""One value per row key field, in schema order."""


class PrimitiveType(Enum):
    """Types without parameters; the value is the name in docs/formats.md, "Schema JSON"."""

    INT = "IntType"
    LONG = "LongType"
    STRING = "StringType"
    BYTE_ARRAY = "ByteArrayType"
    BOOLEAN = "BooleanType"
    FLOAT = "FloatType"
    DOUBLE = "DoubleType"
    TIMESTAMP = "TimestampType"
    DATE = "DateType"
    JSON = "JSONType"


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A fixed-point number of `precision` digits, with `scale` decimal places."""

    precision: int
    scale: int


def _to_element_type(raw: Any) -> Any:
    if isinstance(raw, dict) and not raw.keys().isdisjoint(("ListType", "MapType")):
        raise MismatchError(raw, "a type without elements")
    if raw == PrimitiveType.JSON.value:
        raise MismatchError(raw, "another type: JSONType has lists and objects of JSON")
    return _to_type(raw)


def _to_type(raw: Any) -> Any:
    if isinstance(raw, str) and raw in _PRIMITIVES:
        return _PRIMITIVES[raw]
    name, body = next(iter(raw.items())) if isinstance(raw, dict) and len(raw) == 1 else ("", raw)
    if name not in _COMPOSED:
        raise MismatchError(raw, f"one of {', '.join([*_PRIMITIVES, *_COMPOSED])}")
    result = _COMPOSED[name].decode(body)
    if isinstance(result, DecimalType) and not (
        1 <= result.precision <= _DECIMAL_PRECISION_MAX and 0 <= result.scale <= result.precision
    ):
        expected = f"precision 1 to {_DECIMAL_PRECISION_MAX} and scale 0 to precision"
        raise MismatchError(body, expected)
    return result


def _type_to_json(kind: Any) -> Any:
    if isinstance(kind, PrimitiveType):
        return kind.value
    name = type(kind).__name__
    return {name: _COMPOSED[name].to_json(kind)}


ElementType = Annotated[PrimitiveType | DecimalType, Conversion(_to_element_type, _type_to_json)]


@dataclass(frozen=True, slots=True)
class ListType:
    """A list whose elements are never null."""

    element: Annotated[ElementType, Member("elementType")]


@dataclass(frozen=True, slots=True)
class MapType:
    """A map whose keys and values are never null."""

    key: Annotated[ElementType, Member("keyType")]
    value: Annotated[ElementType, Member("valueType")]


FieldType = PrimitiveType | DecimalType | ListType | MapType
_PRIMITIVES = {each.value: each for each in PrimitiveType}
_DECIMAL_PRECISION_MAX = 38
_COMPOSED: dict[str, JsonCodec[Any]] = {
    each.__name__: JsonCodec(each) for each in (ListType, MapType, DecimalType)
}

PLAIN_KEY_TYPES = frozenset(
    {PrimitiveType.INT, PrimitiveType.LONG, PrimitiveType.STRING, PrimitiveType.BYTE_ARRAY}
)
"""The key types of gchq/sleeper, whose `KeyValue` is the value of users."""
INT_RANGES = {
    PrimitiveType.INT: (-(2**31), 2**31 - 1),
    PrimitiveType.LONG: (-(2**63), 2**63 - 1),
}
_NUMBER_RANGES = {
    **INT_RANGES,
    PrimitiveType.TIMESTAMP: INT_RANGES[PrimitiveType.LONG],
    PrimitiveType.DATE: INT_RANGES[PrimitiveType.INT],
    PrimitiveType.BOOLEAN: (0, 1),
}
KEY_DIGITS_MAX = 18
"""The largest precision of a decimal key, whose `KeyValue` fits 64 bits."""


@cache
def key_number_range(kind: FieldType) -> tuple[int, int] | None:
    """Returns the least and greatest `KeyValue` of a key type of numbers, None for other types."""
    if isinstance(kind, DecimalType):
        largest = 10**kind.precision - 1
        return (-largest, largest) if kind.precision <= KEY_DIGITS_MAX else None
    return _NUMBER_RANGES.get(kind) if isinstance(kind, PrimitiveType) else None


def is_key_type(kind: FieldType) -> bool:
    """Returns whether row and sort key fields may have the type."""
    return kind in PLAIN_KEY_TYPES or key_number_range(kind) is not None


StoredType = Annotated[FieldType, Conversion(_to_type, _type_to_json)]
"""A type with its JSON, for annotations of members."""

Default = int | float | str | bool
"""A default as in JSON. Decimals, times and dates are text, byte arrays base64."""


def _to_default(raw: Any) -> Default:
    if not isinstance(raw, int | float | str):
        raise MismatchError(raw, "a number, a text, true or false")
    return raw


@dataclass(frozen=True, slots=True)
class Field:
    """One column. Only value fields may be nullable.

    The schema numbers fields with the id 0. Rows of files that were written without the field
    have its default, null if it has none. The members of a `document`, of `JSONType`, stand beside
    those of other fields in ingested lines and in copies as documents.
    """

    name: str
    type: StoredType
    nullable: Annotated[bool, Member(optional=True)] = False
    id: Annotated[int, Member(optional=True)] = 0
    default: Annotated[Default | None, Conversion(_to_default), Member(optional=True)] = None
    document: Annotated[bool, Member(optional=True)] = False


@dataclass(frozen=True, slots=True)
class LatestRows:
    """Of rows with equal keys, a table shows the newest only.

    The newest has the largest value of the field `by`, if there is one, and then the largest
    transaction number.
    """

    by: Annotated[str | None, Member(optional=True)] = None


NUMBER_COLUMN = "__number"
DELETED_COLUMN = "__deleted"
HIDDEN_COLUMNS = (NUMBER_COLUMN, DELETED_COLUMN)
"""Columns of data files of tables with `LatestRows`: the transaction number of a row, and whether
it is a tombstone."""

_LATEST_BY_TYPES = PLAIN_KEY_TYPES | {PrimitiveType.TIMESTAMP, PrimitiveType.DATE}


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of a table. Raises InvalidRequestError if they form no valid schema.

    Fields without ids get the next ones: 1 to n if none has an id. `version` is the number of
    the transaction that set the schema, and `earlier` are the schemas before it, which older
    files have. `latest` is None if a table shows all rows with equal keys.
    """

    row_keys: Annotated[tuple[Field, ...], Member("rowKeyFields")]
    sort_keys: Annotated[tuple[Field, ...], Member("sortKeyFields", optional=True)] = (
        dataclasses.field(default_factory=tuple)
    )
    values: Annotated[tuple[Field, ...], Member("valueFields", optional=True)] = dataclasses.field(
        default_factory=tuple
    )
    latest: Annotated[LatestRows | None, Member(optional=True)] = None
    version: Annotated[int, Member(stored=False)] = 1
    earlier: Annotated[tuple["Schema", ...], Member(stored=False)] = dataclasses.field(
        default=(), compare=False, repr=False
    )

    def __post_init__(self) -> None:
        self._number_fields()
        if not self.row_keys:
            raise InvalidRequestError("schema has no row key field (expected at least one)")
        seen: set[str] = set()
        for field in self.fields:
            if not field.name or "\0" in field.name:
                raise InvalidRequestError(f"field name {field.name!r} is empty or has a NUL")
            if field.name in seen:
                raise InvalidRequestError(f"field {field.name!r} is declared more than once")
            seen.add(field.name)
        for field in self.keys:
            if not is_key_type(field.type):
                raise InvalidRequestError(
                    f"key field {field.name!r} has type {type_name(field.type)} "
                    f"(expected {describe_key_types(field.type)})"
                )
            if field.nullable:
                raise InvalidRequestError(f"key field {field.name!r} cannot be nullable")
            if field.default is not None:
                raise InvalidRequestError(f"key field {field.name!r} cannot have a default")
        _check_document(self)
        if self.latest is not None:
            _check_latest(self, self.latest)

    def _number_fields(self) -> None:
        ids = [field.id for field in self.fields]
        if 0 in ids:
            numbers = itertools.count(max(ids) + 1)
            for name in ("row_keys", "sort_keys", "values"):
                numbered = tuple(
                    each if each.id else replace(each, id=next(numbers))
                    for each in getattr(self, name)
                )
                object.__setattr__(self, name, numbered)
        if any(each < 0 for each in ids) or len({*ids} - {0}) < len(ids) - ids.count(0):
            shown = ", ".join(map(str, ids))
            raise InvalidRequestError(
                f"the fields have the ids {shown} (expected different ids from 1, or none)"
            )

    def at(self, version: int | None) -> "Schema":
        """Returns the schema of that version, this one or an earlier one. None is this one.

        DataError if there is none, because the file that has it would be read wrongly.
        """
        for schema in (self, *self.earlier):
            if version in (None, schema.version):
                return schema
        versions = ", ".join(str(each.version) for each in (*self.earlier, self))
        raise DataError(f"no schema has the version {version} (expected one of {versions})")

    def has_fields_of(self, other: "Schema") -> bool:
        """Returns whether the other schema has the same fields in the same order, of any ids."""
        return [(f.name, f.type, f.nullable) for f in self.fields] == [
            (f.name, f.type, f.nullable) for f in other.fields
        ] and len(self.keys) == len(other.keys)

    @property
    def added_names(self) -> frozenset[str]:
        """The names of fields that the first schema did not have."""
        first = {field.id for field in (*self.earlier, self)[0].fields}
        return frozenset(field.name for field in self.values if field.id not in first)

    @property
    def fields(self) -> tuple[Field, ...]:
        """All fields in file order."""
        return self.row_keys + self.sort_keys + self.values

    @property
    def keys(self) -> tuple[Field, ...]:
        """Row keys, then sort keys: the order of rows in every file."""
        return self.row_keys + self.sort_keys

    @property
    def document(self) -> Field | None:
        """The document of a row, if the table declares one."""
        return next((field for field in self.values if field.document), None)

    def field(self, name: str) -> Field:
        """Returns the field of that name. InvalidRequestError lists the existing names."""
        for field in self.fields:
            if field.name == name:
                return field
        names = ", ".join(f.name for f in self.fields)
        raise InvalidRequestError(f"no field {name!r} in the schema, which has: {names}")


def describe_key_types(kind: FieldType) -> str:
    """Returns the types that a key field may have in place of another."""
    match kind:
        case PrimitiveType.FLOAT | PrimitiveType.DOUBLE:
            return f"DecimalType of up to {KEY_DIGITS_MAX} digits: floats have no exact order"
        case DecimalType():
            return f"a precision of at most {KEY_DIGITS_MAX}, or StringType"
    names = ", ".join(each.value for each in PrimitiveType if is_key_type(each))
    return f"{names} or DecimalType"


def _check_document(schema: Schema) -> None:
    documents = [field for field in schema.fields if field.document]
    if len(documents) > 1 or any(each.type is not PrimitiveType.JSON for each in documents):
        names = ", ".join(f"{each.name!r} of {type_name(each.type)}" for each in documents)
        raise InvalidRequestError(f"documents: {names} (expected at most one of JSONType)")


def _check_latest(schema: Schema, latest: LatestRows) -> None:
    for field in schema.fields:
        if field.name in HIDDEN_COLUMNS:
            raise InvalidRequestError(
                f"field {field.name!r}: the name is reserved in a table of latest rows"
            )
    if latest.by is None:
        return
    field = schema.field(latest.by)
    if field in schema.keys:
        raise InvalidRequestError(
            f"field {field.name!r} is a key field, so it cannot order rows with equal keys "
            "(expected a value field)"
        )
    if field.type not in _LATEST_BY_TYPES:
        expected = ", ".join(sorted(each.value for each in _LATEST_BY_TYPES))
        raise InvalidRequestError(
            f"field {field.name!r} has type {type_name(field.type)}, which cannot order rows with "
            f"equal keys (expected {expected})"
        )


_CODEC = JsonCodec(Schema)


def schema_from_json(text: str) -> Schema:
    """Parses schema JSON; InvalidRequestError names the member that is wrong."""
    return _CODEC.parse(text, "schema")


def schema_to_json(schema: Schema) -> str:
    """Returns compact schema JSON.

    `nullable` is left out when false, `default` when null, and ids when they are 1 to n.
    """
    raw = _CODEC.to_json(schema)
    if all(field.id == number for number, field in enumerate(schema.fields, 1)):
        for name in ("rowKeyFields", "sortKeyFields", "valueFields"):
            for field in raw[name]:
                del field["id"]
    return json.dumps(raw, separators=(",", ":"))


def field_type_from_json(raw: object) -> FieldType:
    """Returns the type of a JSON value, as in a schema; InvalidRequestError if it is none."""
    try:
        kind: FieldType = _to_type(raw)
    except MismatchError as error:
        raise InvalidRequestError(str(error)) from None
    return kind


def type_name(field_type: FieldType) -> str:
    """Returns the readable form of the type, such as `ListType(StringType)`."""
    match field_type:
        case PrimitiveType():
            return field_type.value
        case DecimalType(precision, scale):
            return f"DecimalType({precision},{scale})"
        case ListType(element):
            return f"ListType({type_name(element)})"
        case MapType(key, value):
            return f"MapType({type_name(key)},{type_name(value)})"


def smallest_key_value(field: Field) -> KeyValue:
    """Returns the smallest value that the key field can hold."""
    numbers = key_number_range(field.type)
    if numbers is not None:
        return numbers[0]
    return "" if field.type is PrimitiveType.STRING else b""


def precedes(left: KeyValue, right: KeyValue) -> bool:
    """Returns whether left sorts before right, of the same field. Text compares as UTF-8 bytes."""
    return left < right  # type: ignore[operator]


def next_key_value(field: Field, value: KeyValue) -> KeyValue | None:
    """Returns the smallest greater value; None if there is none."""
    if isinstance(value, int):
        numbers = key_number_range(field.type)
        return value + 1 if numbers is not None and value < numbers[1] else None
    return value + "\0" if isinstance(value, str) else value + b"\0"
