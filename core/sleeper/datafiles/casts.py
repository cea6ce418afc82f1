"""Casts of Arrow columns to the fields of a table.

A cast never changes a value: integers may become narrower if they fit, any layout of text, bytes
or decimals is accepted, timestamps may change unit without loss. Values that do not fit are
reported by row. They are found by halving the column, so only a failing batch takes more than one
vectorised call.

Times and dates fit a LongType key as microseconds since 1970, UTC. A date has those of its
midnight, and a time without a zone is in UTC. Value fields of LongType refuse them, because filters
such as `ageOff` read milliseconds.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import (
    arrow_type,
    as_json,
    as_plain,
    decode_dictionary,
    is_json,
    json_storage,
    python_value,
)
from sleeper.datafiles.json_limits import NO_LIMITS, JsonLimits
from sleeper.datafiles.json_text import json_values
from sleeper.datafiles.validity import UnfitError, check_documents, check_inside, check_values
from sleeper.schema.model import DecimalType, FieldType, ListType, MapType, PrimitiveType
from sleeper.schema.model import Field as SchemaField

Cast = Callable[[pa.Array], pa.Array]


def is_key_castable(source: pa.DataType, target: FieldType) -> bool:
    """Whether some values of the Arrow type can fit a key field of the type."""
    return is_castable(source, target) or (target is PrimitiveType.LONG and _is_time(source))


def cast_key_column(column: pa.Array, field: SchemaField) -> tuple[pa.Array, dict[int, str]]:
    """Casts a column of a key field, as `cast_column`. `is_key_castable` must be true."""
    if field.type is PrimitiveType.LONG and _is_time(column.type):
        return cast_or_find(column, field, _as_microseconds)
    return cast_column(column, field)


def _is_time(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _as_microseconds(column: pa.Array) -> pa.Array:
    check_values(column)
    column = decode_dictionary(column)
    return column.cast(pa.timestamp("us", getattr(column.type, "tz", None))).cast(pa.int64())


def is_castable(source: pa.DataType, target: FieldType) -> bool:
    """Whether some values of the Arrow type can fit the field type."""
    if pa.types.is_dictionary(source):
        source = source.value_type
    if pa.types.is_null(source):
        return True
    if is_json(source):
        return target in (PrimitiveType.JSON, PrimitiveType.STRING)
    match target:
        case PrimitiveType():
            return any(fits(source) for fits in _CASTABLE_FROM[target])
        case DecimalType():
            return bool(pa.types.is_decimal(source) or pa.types.is_integer(source))
        case ListType(element):
            return _is_list(source) and is_castable(source.value_type, element)
        case MapType(key, value):
            return (
                bool(pa.types.is_map(source))
                and is_castable(source.key_type, key)
                and is_castable(source.item_type, value)
            )


def cast_column(
    column: pa.Array, field: SchemaField, limits: JsonLimits = NO_LIMITS
) -> tuple[pa.Array, dict[int, str]]:
    """Casts the column to the field's type. Returns it with the reasons of rows that do not fit.

    A row that does not fit is null in the result. `is_castable` must be true. DamagedArrayError if
    the column is damaged.
    """
    return cast_or_find(column, field, lambda part: cast_values(part, field.type, limits))


def cast_or_find(
    column: pa.Array, field: SchemaField, cast: Cast
) -> tuple[pa.Array, dict[int, str]]:
    """Applies `cast` to the column. Returns the result with the reasons of failed rows."""
    bad: dict[int, str] = {}
    result = _cast_by_halves(column, cast, 0, bad)
    if not field.nullable and result.null_count > len(bad):
        nulls = pc.indices_nonzero(pc.is_null(result)).to_pylist()
        for row in nulls:
            bad.setdefault(row, "null, but the field is not nullable")
    return result.cast(arrow_type(field.type)), bad


def _cast_by_halves(column: pa.Array, cast: Cast, start: int, bad: dict[int, str]) -> pa.Array:
    try:
        return cast(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnfitError) as error:
        if len(column) == 1:
            bad[start] = f"{_format_first(column)}: {str(error).splitlines()[0]}"
            return pa.nulls(1)
    half = len(column) // 2
    parts = [
        _cast_by_halves(_copy(column.slice(0, half)), cast, start, bad),
        _cast_by_halves(_copy(column.slice(half)), cast, start + half, bad),
    ]
    kinds = {p.type for p in parts if not pa.types.is_null(p.type)}
    kind = kinds.pop() if kinds else pa.null()
    return pa.concat_arrays([p.cast(kind) for p in parts])


def _copy(column: pa.Array) -> pa.Array:
    """Returns the column without values outside of its slice, which Arrow checks in lists."""
    return pa.concat_arrays([column])


def cast_values(column: pa.Array, target: FieldType, limits: JsonLimits = NO_LIMITS) -> pa.Array:
    """Casts the values. Raises UnfitError or an error of Arrow if one does not fit.

    DamagedArrayError if the array is damaged.
    """
    check_values(column)
    column = decode_dictionary(column)
    kind = arrow_type(target)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind)
    if target is PrimitiveType.JSON:
        return _to_json(column, limits)
    if is_json(column.type):
        return json_storage(column)
    return _cast_values(column, target, kind)


def _cast_values(column: pa.Array, target: FieldType, kind: pa.DataType) -> pa.Array:
    match target:
        case ListType() | MapType():
            result = column.cast(_nullable_inside(kind))
            check_inside(result)
            if infinities(result) > infinities(column):
                raise UnfitError("too large for FloatType")
            return result
        case PrimitiveType.FLOAT if pa.types.is_float64(column.type):
            return _narrow_floats(column)
        case PrimitiveType.TIMESTAMP if pa.types.is_timestamp(column.type) and not column.type.tz:
            return pc.assume_timezone(column.cast(pa.timestamp("us")), "UTC")
        case PrimitiveType.INT | PrimitiveType.LONG if pa.types.is_floating(column.type):
            if pc.any(pc.invert(pc.is_finite(column))).as_py():
                raise UnfitError("not an integer")
            return column.cast(kind)
        case DecimalType() if pa.types.is_integer(column.type):
            return column.cast(pa.decimal128(20, 0)).cast(kind)
        case _:
            return column.cast(kind)


def _to_json(column: pa.Array, limits: JsonLimits) -> pa.Array:
    """Returns text as it is, and the JSON of other values."""
    if is_json(column.type):
        text = json_storage(column)
    elif _is_text(column.type):
        text = as_plain(column).cast(pa.string())
    else:
        text = pc.if_else(column.is_valid(), json_values(column), pa.scalar(None, pa.string()))
    check_documents(text, limits)
    return as_json(text)


def infinities(column: pa.Array) -> int:
    """Counts infinite floats in a column, its lists, or the values of its maps or pairs."""
    kind = column.type
    if pa.types.is_map(kind):
        start, stop = column.offsets[0].as_py(), column.offsets[-1].as_py()
        return infinities(column.items.slice(start, stop - start))
    if pa.types.is_struct(kind):
        return infinities(column.flatten()[1])
    if pa.types.is_nested(kind):
        return infinities(column.flatten())
    return int(pc.sum(pc.is_inf(column)).as_py() or 0) if pa.types.is_floating(kind) else 0


def _narrow_floats(column: pa.Array) -> pa.Array:
    narrow = column.cast(pa.float32())
    overflows = pc.and_(pc.is_inf(narrow), pc.invert(pc.is_inf(column)))
    if pc.any(overflows).as_py():
        raise UnfitError("too large for FloatType")
    return narrow


def _nullable_inside(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_type)
    return pa.list_(kind.value_type)


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _format_first(column: pa.Array) -> str:
    """Returns the first value of the column as text of limited length."""
    text = repr(python_value(column[0]))
    return text if len(text) <= 80 else text[:77] + "..."


_NUMBER = (pa.types.is_integer, pa.types.is_floating)
_CASTABLE_FROM: dict[PrimitiveType, tuple[Callable[[pa.DataType], bool], ...]] = {
    PrimitiveType.INT: _NUMBER,
    PrimitiveType.LONG: _NUMBER,
    PrimitiveType.FLOAT: _NUMBER,
    PrimitiveType.DOUBLE: _NUMBER,
    PrimitiveType.STRING: (_is_text,),
    PrimitiveType.BYTE_ARRAY: (_is_binary,),
    PrimitiveType.BOOLEAN: (pa.types.is_boolean,),
    PrimitiveType.TIMESTAMP: (pa.types.is_timestamp,),
    PrimitiveType.DATE: (pa.types.is_date,),
    PrimitiveType.JSON: (_is_text, pa.types.is_nested, pa.types.is_boolean, *_NUMBER),
}
