"""Dates and times as ISO 8601 text, in every year of their types.

Arrow supports the years 1 to 9999. Other years have numpy's format: as many digits as needed,
after a minus before year 0.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_FIRST_DAY = -719_162  # 0001-01-01, in days since 1970-01-01
_END_DAY = 2_932_897  # 10000-01-01
_PER_DAY = {"D": 1, "s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}
_FAR = r"^(-|\d{5}|0000-)"
_WHOLE = r"^-?\d{1,9}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?$"


def time_text(column: pa.Array) -> pa.Array:
    """Formats dates, or timestamps without a zone. Nulls stay null."""
    per_day = _PER_DAY[_unit(column.type)]
    numbers = column.cast(pa.int32()) if pa.types.is_date32(column.type) else column
    numbers = numbers.cast(pa.int64())
    # A comparison with a number would import pandas (`conversions`).
    least, greatest = (each.as_py() for each in pc.min_max(numbers).values())
    first, end = _FIRST_DAY * per_day, _END_DAY * per_day
    if least is None or (first <= least and greatest < end):
        return column.cast(pa.string())
    low, high = (_in_bounds(number) for number in (first, end))
    is_far = pc.fill_null(pc.or_(pc.less(numbers, low), pc.greater_equal(numbers, high)), False)
    near = pc.if_else(is_far, None, column).cast(pa.string())
    far = np.datetime_as_string(column.filter(is_far).to_numpy(zero_copy_only=False))
    return pc.replace_with_mask(near, is_far, pa.array(far, pa.string()))


def parse_times(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Parses dates or timestamps of the type. If the type has a zone, the text needs one.

    ArrowInvalid if the text is invalid or out of the type's bounds.
    """
    is_far = pc.fill_null(pc.match_substring_regex(column, _FAR), False)
    if not pc.any(is_far).as_py():
        return column.cast(kind)
    near = pc.if_else(is_far, None, column).cast(kind)
    return pc.replace_with_mask(near, is_far, _far_times(column.filter(is_far), kind))


def _far_times(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        if not pc.all(pc.ends_with(texts, "Z")).as_py():
            raise pa.ArrowInvalid("a year before 1 or after 9999 is in UTC: Z is its zone")
        texts = pc.utf8_rtrim(texts, "Z")
    if not pc.all(pc.match_substring_regex(texts, _WHOLE)).as_py():
        is_date = pa.types.is_date32(kind)
        expected = "date such as 2026-03-01" if is_date else "time such as 2026-03-01T06:00:00"
        raise pa.ArrowInvalid(f"expected a {expected}")
    try:
        times = np.array(texts.to_numpy(zero_copy_only=False), f"datetime64[{_unit(kind)}]")
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from error
    # Times out of bounds wrap around.
    years = pc.replace_substring_regex(texts, r"(\d)-.*$", r"\1").cast(pa.int64())
    if (times.astype("datetime64[Y]").astype(np.int64) + 1970 != years.to_numpy()).any():
        raise pa.ArrowInvalid(f"the year is out of the bounds of {kind}")
    numbers = pa.array(times.astype(np.int64))
    return (numbers.cast(pa.int32()) if pa.types.is_date32(kind) else numbers).cast(kind)


def _unit(kind: Any) -> str:
    return "D" if pa.types.is_date32(kind) else str(kind.unit)


def _in_bounds(number: int) -> pa.Scalar:
    bounds = np.iinfo(np.int64)
    return pa.scalar(min(max(number, int(bounds.min)), int(bounds.max)), pa.int64())
