"""Arrow columns as text, whole columns at a time: values as JSON, and as plain text.

The JSON is specified in docs/formats.md, "Rows in JSON". Characters outside XML 1.0 are escaped,
because SQS does not accept them.
"""

import json
from binascii import b2a_base64
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import decode_dictionary, is_json, json_storage
from sleeper.datafiles.conversions import integer_array, key_array, text_scalar
from sleeper.datafiles.times import time_text

_TO_ESCAPE = r'["\\\x00-\x1f\x{FFFE}\x{FFFF}]'
_FEW_ROWS = 500
_NO_TEXT = pa.nulls(1, pa.string())[0]
_ESCAPED_CHARACTERS = [*map(chr, range(0x20)), "\ufffe", "\uffff"]


def json_lines(batch: pa.RecordBatch) -> pa.Array:
    """Returns a JSON object per row. Nulls of `JSONType` are absent members."""
    parts: list[pa.Array | str] = []
    is_first_present = False
    for index, field in enumerate(batch.schema):
        before = ("," if index else "") + json.dumps(field.name, ensure_ascii=False) + ":"
        column = batch.column(index)
        if is_json(field.type):
            parts.append(pc.fill_null(_concatenate(before, _one_line(column)), text_scalar("")))
        else:
            is_first_present = is_first_present or not index
            parts += [before, json_values(column)]
    if not parts:
        return pa.repeat(text_scalar("{}"), batch.num_rows)
    if is_first_present:
        return _concatenate("{", *parts, "}")
    # A comma follows the first member, if it is absent.
    return _concatenate("{", pc.utf8_ltrim(_concatenate(*parts), ","), "}")


def _one_line(column: pa.Array) -> pa.Array:
    """Returns the text of `JSONType`, in which line ends are space: within quotes are none.

    Characters that are not in XML are only within quotes, so they are escaped.
    """
    text = json_storage(column)
    if pc.any(pc.match_substring_regex(text, r"[\r\n\x{FFFE}\x{FFFF}]")).as_py():
        text = pc.replace_substring_regex(text, r"[\r\n]", " ")
        for character in ("\ufffe", "\uffff"):
            text = pc.replace_substring(text, character, json.dumps(character)[1:-1])
    return text


def json_values(column: pa.Array) -> pa.Array:
    """Returns each value as JSON, with `null` for nulls."""
    kind = column.type
    if is_json(kind):
        text = _one_line(column)
    elif pa.types.is_nested(kind):
        text = _nested_json(column)
    elif pa.types.is_null(kind):
        return pa.repeat(text_scalar("null"), len(column))
    elif pa.types.is_floating(kind):
        text = _float_json(column)
    elif _is_number(kind) or pa.types.is_boolean(kind):
        text = column.cast(pa.string())
    else:
        text = _json_strings(plain_text(column))
    return pc.fill_null(text, text_scalar("null"))


def plain_text(column: pa.Array) -> pa.Array:
    """Returns each value as plain text; nested values as JSON, nulls as nulls."""
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if is_json(kind):
        return json_storage(column)
    if pa.types.is_dictionary(kind):
        return plain_text(decode_dictionary(column))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _base64(column)
    if pa.types.is_timestamp(kind):
        # Removes the time zone, because a cast with a zone would need a zone database.
        text = time_text(column.cast(pa.timestamp(kind.unit)))
        text = pc.replace_substring(text, " ", "T", max_replacements=1)
        return text if kind.tz is None else _concatenate(text, "Z")
    if pa.types.is_date32(kind):
        return time_text(column)
    if is_duration(kind):
        return duration_text(column)
    if pa.types.is_nested(kind):
        return _nested_json(column)
    return column.cast(pa.string())


def _nested_json(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_struct(kind):
        rows = pa.RecordBatch.from_arrays(column.flatten(), [f.name for f in kind])
        text = json_lines(rows)
    elif pa.types.is_map(kind):
        start, stop = column.offsets[0].as_py(), column.offsets[-1].as_py()
        keys = plain_text(column.keys.slice(start, stop - start))
        values = json_values(column.items.slice(start, stop - start))
        pairs = pc.binary_join_element_wise(_json_strings(keys), values, text_scalar(":"))
        text = _join_elements("{", pairs, column.offsets, "}")
    else:
        # Without the offsets of the column, because those of a list view have another meaning.
        zero = integer_array(np.zeros(1, np.int64))
        lengths = pc.fill_null(pc.list_value_length(column).cast(pa.int64()), zero[0])
        offsets = pc.cumulative_sum(pa.concat_arrays([zero, lengths]))
        elements = json_values(column.flatten())
        text = _join_elements("[", elements, offsets.cast(pa.int32()), "]")
    return pc.if_else(column.is_valid(), text, _NO_TEXT)


def _join_elements(before: str, elements: pa.Array, offsets: pa.Array, after: str) -> pa.Array:
    lists = pa.ListArray.from_arrays(pc.subtract(offsets, offsets[0]), elements)
    return _concatenate(before, pc.binary_join(lists, text_scalar(",")), after)


def _json_strings(text: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(text, _TO_ESCAPE)).as_py():
        text = pc.replace_substring(text, "\\", "\\\\")
        text = pc.replace_substring(text, '"', '\\"')
        if pc.any(pc.match_substring_regex(text, r"[\x00-\x1f\x{FFFE}\x{FFFF}]")).as_py():
            for character in _ESCAPED_CHARACTERS:
                text = pc.replace_substring(text, character, json.dumps(character)[1:-1])
    return _concatenate('"', text, '"')


def _concatenate(*parts: pa.Array | str) -> pa.Array:
    """Returns the texts of each row one after another, null if one is."""
    arguments = [text_scalar(each) if isinstance(each, str) else each for each in parts]
    return pc.binary_join_element_wise(*arguments, text_scalar(""))


def _float_json(column: pa.Array) -> pa.Array:
    text = column.cast(pa.string())
    # Many readers parse -0 as an integer, which has no sign.
    text = pc.if_else(pc.equal(text, text_scalar("-0")), text_scalar("-0.0"), text)
    if pc.all(pc.is_finite(column)).as_py() is not False:
        return text
    text = pc.if_else(pc.is_nan(column), '"NaN"', text)
    infinite = pc.if_else(pc.greater(column, 0), '"Infinity"', '"-Infinity"')
    return pc.if_else(pc.is_inf(column), infinite, text)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _base64(column: pa.Array) -> pa.Array:
    # Importing DataFusion takes longer than a lookup.
    if len(column) <= _FEW_ROWS:
        values = (b"" if each is None else each for each in column.to_pylist())
        texts = key_array([b2a_base64(each, newline=False) for each in values], pa.binary())
        return pc.if_else(column.is_valid(), texts.view(pa.string()), _NO_TEXT)
    from datafusion import functions

    from sleeper.datafiles.engine.session import map_column

    return map_column(column, lambda value: functions.encode(value, "base64pad"), pa.string())


_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# The columnar format of Arrow specifies the members of an interval.
_INTERVAL = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
Numbers = npt.NDArray[np.int64]


def is_duration(kind: pa.DataType) -> bool:
    """Whether the type is one of `duration_text`."""
    return bool(pa.types.is_duration(kind) or pa.types.is_interval(kind))


def duration_text(column: pa.Array) -> pa.Array:
    """Formats durations, or intervals of months, days and nanoseconds, such as `P2DT1.5S`.

    Parts below zero have a minus. Nulls stay null.
    """
    count = len(column)
    if pa.types.is_duration(column.type):
        per_second = _PER_SECOND[column.type.unit]
        numbers = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
        days = _divide(numbers, 86_400 * per_second)
        parts = (np.zeros(count, np.int64), days, numbers - days * 86_400 * per_second)
    else:
        per_second = _PER_SECOND["ns"]
        (_, content) = column.buffers()
        members: Any = np.frombuffer(content, _INTERVAL, count, column.offset * _INTERVAL.itemsize)
        parts = tuple(members[name].astype(np.int64) for name in _INTERVAL.names or ())
    months, days, rest = parts
    minutes = _divide(rest, 60 * per_second)
    hours = _divide(minutes, 60)
    time = _join(
        _part(hours, "H"),
        _part(minutes - hours * 60, "M"),
        _seconds(rest - minutes * 60 * per_second, per_second),
    )
    time = pc.if_else(pc.equal(time, ""), "", _join(text_scalar("T"), time))
    text = _join(_part(months, "M"), _part(days, "D"), time)
    text = _join(text_scalar("P"), pc.if_else(pc.equal(text, ""), "T0S", text))
    return pc.if_else(column.is_valid(), text, None)


def _divide(numbers: Numbers, by: int) -> Numbers:
    """Divides towards zero, so that all parts have the sign of the whole."""
    quotients: Numbers = numbers // by
    quotients += (numbers < 0) & (quotients * by != numbers)
    return quotients


def _part(numbers: Numbers, name: str) -> pa.Array:
    values = pa.array(numbers)
    return pc.if_else(pc.equal(values, 0), "", _join(values.cast(pa.string()), text_scalar(name)))


def _seconds(numbers: Numbers, per_second: int) -> pa.Array:
    whole = np.abs(numbers)
    seconds = pa.array(whole // per_second).cast(pa.string())
    # The digits of a fraction after a leading one keep their zeros.
    digits = pc.utf8_slice_codeunits(pa.array(whole % per_second + per_second).cast(pa.string()), 1)
    digits = pc.utf8_rtrim(digits, "0")
    fraction = pc.if_else(pc.equal(digits, ""), "", _join(text_scalar("."), digits))
    sign = pc.if_else(pa.array(numbers < 0), "-", "")
    text = _join(sign, seconds, fraction, text_scalar("S"))
    return pc.if_else(pa.array(numbers == 0), "", text)


def _join(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, text_scalar(""))
