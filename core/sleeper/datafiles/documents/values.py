"""The values of spans as columns of a type, with nulls for documents without one."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.documents.bits import Flags
from sleeper.datafiles.documents.spans import Spans
from sleeper.datafiles.documents.texts import Parts, unescape_texts, view_parts, whole_parts

_QUOTE, _TRUE, _FALSE, _NULL = (ord(each) for each in '"tfn')
_INTEGER = r"^-?[0-9]+$"
_SAFE_DIGITS = 18
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_TYPES = ("object", "array", "string", "boolean", "null", "number")
_TYPE_CODES = np.full(256, 5, np.int8)
_TYPE_CODES[[ord(each) for each in '{["tfn']] = (0, 1, 2, 3, 3, 4)


def json_values(spans: Spans) -> pa.Array:
    """Returns the text of the values, as it is written in the documents."""
    parts = Parts(spans.documents.content, spans.rows, spans.starts, spans.ends)
    return view_parts(len(spans.documents), parts)


def text_values(spans: Spans) -> pa.Array:
    """Returns texts without their quotes and escapes, and other values as they are written.

    The null of JSON becomes one of SQL.
    """
    documents = spans.documents
    spans = spans.where(spans.first_bytes != _NULL)
    quotes = (spans.first_bytes == _QUOTE).astype(np.int64)
    parts = Parts(documents.content, spans.rows, spans.starts + quotes, spans.ends - quotes)
    if not documents.has_escapes:
        return view_parts(len(documents), parts)
    has_escapes = documents.have_escapes(spans.starts, spans.ends) & (quotes == 1)
    escaped = spans.where(has_escapes)
    decoded = unescape_texts(documents.content, escaped.starts, escaped.ends)
    return view_parts(len(documents), parts, whole_parts(escaped.rows, decoded))


def quoted_values(spans: Spans) -> pa.Array:
    """Returns the texts, and null for all others."""
    return text_values(spans.where(spans.first_bytes == _QUOTE))


def integer_values(spans: Spans) -> pa.Array:
    """Returns the integers of 64 bits, without a fraction or an exponent, and null for others."""
    texts = _numbers(spans)
    try:
        return texts.cast(pa.int64())
    except pa.ArrowInvalid:
        is_integer = pc.match_substring_regex(texts, _INTEGER)
    is_short = pc.less_equal(pc.binary_length(texts), _SAFE_DIGITS)
    integers = pc.if_else(pc.and_(is_integer, is_short), texts, None).cast(pa.int64())
    long = np.flatnonzero(pc.fill_null(pc.and_not(is_integer, is_short), False))
    if not len(long):
        return integers
    # Integers of so many digits are few.
    values = [_as_long(each) for each in texts.take(pa.array(long)).to_pylist()]
    places = np.arange(len(integers))
    places[long] = len(integers) + np.arange(len(long))
    return pa.concat_arrays([integers, pa.array(values, pa.int64())]).take(pa.array(places))


def _as_long(text: str) -> int | None:
    digits = text.lstrip("-").lstrip("0")
    if len(digits) > _SAFE_DIGITS + 1:
        return None
    value = int(text)
    return value if _LONG_MIN <= value <= _LONG_MAX else None


def float_values(spans: Spans) -> pa.Array:
    """Returns the numbers as floats of 64 bits, and null for others."""
    return _numbers(spans).cast(pa.float64())


def bool_values(spans: Spans) -> pa.Array:
    """Returns the truth values, and null for others."""
    first = spans.first_bytes
    truths = spans.where((first == _TRUE) | (first == _FALSE))
    is_valid, (is_true,) = by_row(truths, (truths.first_bytes == _TRUE).astype(np.int64))
    return pa.array(is_true == 1, mask=~is_valid)


def type_values(spans: Spans) -> pa.Array:
    """Returns the names of the types: object, array, string, number, boolean or null."""
    is_valid, (codes,) = by_row(spans, _TYPE_CODES[spans.first_bytes].astype(np.int64))
    return pa.array(_TYPES).take(pa.array(codes, mask=~is_valid))


def _numbers(spans: Spans) -> pa.Array:
    is_number = _TYPE_CODES[spans.first_bytes] == _TYPES.index("number")
    return json_values(spans.where(is_number)).cast(pa.string())


def by_row(
    spans: Spans, *columns: npt.NDArray[np.int64]
) -> tuple[Flags, list[npt.NDArray[np.int64]]]:
    """Returns which documents have a value, and the columns by document, with 0 for others."""
    count = len(spans.documents)
    if len(spans) == count:
        return np.ones(count, np.bool_), list(columns)
    is_valid = np.zeros(count, np.bool_)
    is_valid[spans.rows] = True
    results = []
    for column in columns:
        result = np.zeros(count, np.int64)
        result[spans.rows] = column
        results.append(result)
    return is_valid, results
