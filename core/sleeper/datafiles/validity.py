"""Checks of Arrow arrays that come from outside: a program, a request, or a user's code.

Arrow trusts its arrays. It reads memory at whatever place an offset names, and stores a decimal
of too many digits as another number. A *damaged* array has offsets or indices beyond its buffers.
Nothing but these checks may read it. An *unfit* value can be read, but no field has it: text that
is not UTF-8, a decimal of more digits than its type, a date with a time of day, a null inside a
list or map, a map with two equal keys. Times of all years fit, within the bounds of their type.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import is_json, json_storage
from sleeper.datafiles.conversions import as_numbers, integer_array
from sleeper.datafiles.json_limits import NO_LIMITS, JsonLimits
from sleeper.datafiles.json_syntax import NotJsonError, check_json
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import Field, ListType, MapType, PrimitiveType, Schema


class DamagedArrayError(InvalidRequestError):
    """The array has offsets or indices beyond its buffers, so none of its rows can be read."""


class UnfitError(Exception):
    """A value can be read, but no field has it."""


def check_undamaged(batch: pa.RecordBatch) -> None:
    """Raises DamagedArrayError, with the field, if a column of any type is damaged."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            check_array(column)
        except DamagedArrayError as error:
            raise DamagedArrayError(f"field {name!r}: {error}") from error


def check_array(column: pa.Array) -> None:
    """Raises DamagedArrayError if an array of any type is damaged. Unfit values pass."""
    kind = column.type
    try:
        if _is_nested(kind):
            column.validate()
            for child in _children(column):
                check_array(child)
        elif pa.types.is_dictionary(kind):
            column.validate()
            check_array(column.dictionary)
            ends = pc.min_max(column.indices).as_py()
            if ends["min"] is not None and not 0 <= ends["min"] <= ends["max"] < len(
                column.dictionary
            ):
                raise DamagedArrayError("damaged array: indices beyond its dictionary")
        elif pa.types.is_decimal(kind) or pa.types.is_temporal(kind):
            column.validate()
        elif kind in _BYTES:
            # All bytes fit, so what is wrong is damaged.
            column.view(_BYTES[kind]).validate(full=True)
        else:
            column.validate(full=True)
    except pa.ArrowException as error:
        raise DamagedArrayError(f"damaged array: {_first_line(error)}") from error


def check_values(column: pa.Array) -> None:
    """Raises UnfitError if a value of an array is unfit, and DamagedArrayError if it is damaged.

    Nulls inside and equal keys are those of the table's types: `check_inside`.
    """
    try:
        _validate(column)
    except pa.ArrowException as error:
        check_array(column)
        raise UnfitError(_first_line(error)) from error


def check_inside(column: pa.Array) -> None:
    """Raises UnfitError if an undamaged list or map of values has nulls inside or equal keys."""
    if pa.types.is_map(column.type):
        pairs = column.view(_pairs(column.type))
        entries = pairs.flatten()
        keys, values = entries.flatten()
        if entries.null_count or keys.null_count or values.null_count:
            raise UnfitError("null inside a map")
        check_unique_keys(as_numbers(pc.list_parent_indices(pairs)), keys)
    elif pa.types.is_nested(column.type) and column.flatten().null_count:
        raise UnfitError("null inside a list")


def check_unique_keys(maps: npt.NDArray[Any], keys: pa.Array) -> None:
    """Raises UnfitError if a map has a key twice. `maps` has the number of each key's map."""
    keys = _as_distinct(keys)
    longest = int(np.bincount(maps).max(initial=0))
    if longest > _COMPARED_KEYS_MAX:
        pairs = pa.table({"map": maps, "key": keys})
        if pairs.group_by(["map", "key"], use_threads=False).aggregate([]).num_rows == len(keys):
            return
    elif not any(_has_equal_keys(maps, keys, distance) for distance in range(1, longest)):
        return
    raise UnfitError("duplicate key in a map")


def _as_distinct(keys: pa.Array) -> pa.Array:
    """Returns numbers for floats, of which 0.0 and -0.0 are different keys, and all NaN are one."""
    if not pa.types.is_floating(keys.type):
        return keys
    values = keys.to_numpy(zero_copy_only=False)
    values = np.where(np.isnan(values), np.nan, values).astype(values.dtype)
    return integer_array(values.view(f"i{values.dtype.itemsize}"))


def check_field(column: pa.Array, field: Field) -> None:
    """Raises UnfitError or DamagedArrayError unless the field can have the array's values.

    The array has the Arrow type of the field; JSON may be text.
    """
    check_values(column)
    if not field.nullable and column.null_count:
        raise UnfitError("null, but the field is not nullable")
    if isinstance(field.type, ListType | MapType):
        check_inside(column)
    if field.type is PrimitiveType.JSON:
        check_documents(json_storage(column) if is_json(column.type) else column)


def check_documents(text: pa.Array, limits: JsonLimits = NO_LIMITS) -> None:
    """Raises UnfitError unless each text is a JSON value within the limits."""
    try:
        check_json(text, limits)
    except NotJsonError as error:
        raise UnfitError(str(error)) from error


def check_rows(batch: pa.RecordBatch, schema: Schema) -> None:
    """Raises as `check_field`, with the field, unless the rows can be those of a table.

    The batch has the Arrow types of the schema.
    """
    for each in schema.fields:
        try:
            check_field(batch.column(each.name), each)
        except UnfitError as error:
            raise UnfitError(f"field {each.name!r}: {error}") from error
        except DamagedArrayError as error:
            raise DamagedArrayError(f"field {each.name!r}: {error}") from error


def _validate(column: pa.Array) -> None:
    """Validates an array in full. Slices of lists take as long as their own elements."""
    if _is_nested(column.type):
        column.validate()
        for child in _children(column):
            _validate(child)
    else:
        column.validate(full=True)


def _is_nested(kind: pa.DataType) -> bool:
    """Whether `_children` has the values of the type."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_map(kind)
        or pa.types.is_struct(kind)
    )


def _children(column: pa.Array) -> list[pa.Array]:
    """Returns the elements, keys and values, or members of the rows of this slice."""
    kind = column.type
    if pa.types.is_struct(kind):
        return [column.field(index) for index in range(kind.num_fields)]
    children = [column.keys, column.items] if pa.types.is_map(kind) else [column.values]
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return []
    width = np.dtype(np.int64 if pa.types.is_large_list(kind) else np.int32)
    offsets = np.frombuffer(buffer, width, len(column) + 1, column.offset * width.itemsize)
    start, stop = int(offsets[0]), int(offsets[-1])
    size = min(map(len, children))
    if start < 0 or stop > size or (offsets[1:] < offsets[:-1]).any():
        raise DamagedArrayError(f"damaged array: offsets beyond its {size} elements")
    return [child.slice(start, stop - start) for child in children]


def _pairs(kind: pa.DataType) -> pa.DataType:
    """Returns the type of a map as a list, for kernels that do not support maps."""
    return pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))


def _has_equal_keys(maps: npt.NDArray[Any], keys: pa.Array, distance: int) -> bool:
    """Whether two keys of a map that have this distance are equal."""
    is_equal = pc.equal(keys[distance:], keys[:-distance]).to_numpy(zero_copy_only=False)
    return bool((is_equal & (maps[distance:] == maps[:-distance])).any())


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


# Of longer maps, the keys are grouped instead.
_COMPARED_KEYS_MAX = 16
_BYTES = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}
