"""Durations and intervals as ISO 8601 text, such as `P2DT1.5S`; parts below zero have a minus."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.conversions import text_scalar

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# The columnar format of Arrow specifies the members of an interval.
_INTERVAL = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
Numbers = npt.NDArray[np.int64]


def is_duration(kind: pa.DataType) -> bool:
    """Whether the type is one of `duration_text`."""
    return bool(pa.types.is_duration(kind) or pa.types.is_interval(kind))


def duration_text(column: pa.Array) -> pa.Array:
    """Formats durations, or intervals of months, days and nanoseconds. Nulls stay null."""
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
