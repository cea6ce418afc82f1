"""Whether documents contain a value, as PostgreSQL's `jsonb @> value` decides.

An object contains one whose members it has, each with a value that contains the other one. An array
contains one if each of the other's elements is equal to, or contained in, one of its own. Scalars
contain equal ones; a document that is an array contains a scalar that is one of its elements.
Numbers are equal by value, so 1.10 contains 1.1.
"""

import json
import re
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.documents.bits import Flags
from sleeper.datafiles.documents.content import read_parts
from sleeper.datafiles.documents.parts import arrays_of, elements, objects_of
from sleeper.datafiles.documents.spans import Spans, whole
from sleeper.datafiles.documents.values import json_values, quoted_values

_NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?")
_CACHED_LENGTH_MAX = 1000
_EXPONENT_DIGITS_MAX = 18
_CONSTANTS = {None: b"n", True: b"t", False: b"f"}


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


def parse_candidate(text: str) -> Any:
    """Returns the value of a JSON text for `contains`."""
    # Long ones would fill the memory that the cache keeps.
    return (_parse_cached if len(text) <= _CACHED_LENGTH_MAX else _parse)(text)


def _parse(text: str) -> Any:
    return json.loads(text, parse_int=_Number, parse_float=_Number)


_parse_cached = lru_cache(maxsize=64)(_parse)


def contains(documents: pa.Array, text: str) -> pa.Array:
    """Returns whether each document of a column contains the value, null for a null.

    NotJsonError for some text that is not JSON.
    """
    parts = read_parts(documents)
    return pa.concat_arrays([containment_values(whole(part), text) for part in parts])


def containment_values(spans: Spans, text: str) -> pa.Array:
    """Returns whether each document contains the value of a JSON text."""
    candidate = parse_candidate(text)
    # A document that is a number may have blanks after it.
    spans = spans.follow(())
    flags = _contains(spans, candidate)
    if not isinstance(candidate, dict | list):
        flags |= _has_elements(arrays_of(spans), [candidate])
    is_valid = np.zeros(len(flags), np.bool_)
    is_valid[spans.rows] = True
    return pa.array(flags, mask=~is_valid)


def _contains(spans: Spans, candidate: Any) -> Flags:
    """Returns, by document, whether its value contains the candidate."""
    if isinstance(candidate, dict):
        flags = _rows(objects_of(spans))
        for name, value in candidate.items():
            if flags.any():
                flags &= _contains(spans.follow((name,)), value)
        return flags
    if isinstance(candidate, list):
        return _has_elements(arrays_of(spans), candidate)
    return _is_equal(spans, candidate)


def _has_elements(arrays: Spans, candidates: list[Any]) -> Flags:
    flags = _rows(arrays)
    if not candidates or not flags.any():
        return flags
    children = elements(arrays)
    values = children.documents()
    rows = arrays.rows[children.places]
    for candidate in candidates:
        has_it = np.zeros(len(flags), np.bool_)
        has_it[rows[_contains(values, candidate)]] = True
        flags &= has_it
    return flags


def _rows(spans: Spans) -> Flags:
    flags = np.zeros(len(spans.documents), np.bool_)
    flags[spans.rows] = True
    return flags


def _is_equal(spans: Spans, candidate: Any) -> Flags:
    """Returns, by document, whether its value is this scalar."""
    if isinstance(candidate, _Number):
        return _is_number(spans, candidate)
    if isinstance(candidate, str):
        return _flags(pc.equal(quoted_values(spans).cast(pa.string()), candidate))
    return _rows(spans.where(spans.first_bytes == ord(_CONSTANTS[candidate])))


def _is_number(spans: Spans, candidate: str) -> Flags:
    first = spans.first_bytes
    is_number = (first == ord("-")) | ((first >= ord("0")) & (first <= ord("9")))
    texts = json_values(spans.where(is_number)).cast(pa.string()).dictionary_encode()
    # Only those that are nearly equal are compared by their digits.
    distinct = texts.dictionary
    is_near = pc.equal(distinct.cast(pa.float64()), float(candidate)).to_numpy(False)
    key = _number_key(candidate)
    is_equal = np.zeros(len(distinct) + 1, np.bool_)
    for index in np.flatnonzero(is_near):
        is_equal[index] = _number_key(distinct[index].as_py()) == key
    codes = pc.fill_null(texts.indices, len(distinct)).to_numpy()
    flags: Flags = is_equal[codes]
    return flags


def _number_key(text: str) -> tuple[str, str, str]:
    """Returns the sign, the digits and the exponent of a number, the same for equal numbers."""
    match = _NUMBER.fullmatch(text)
    sign, whole, fraction, exponent = match.groups("") if match else ("", text, "", "")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return "", "", ""
    if len(exponent) > _EXPONENT_DIGITS_MAX:
        return sign, digits, exponent
    least = digits.rstrip("0")
    return sign, least, str(int(exponent or 0) - len(fraction) + len(digits) - len(least))


def _flags(column: pa.Array) -> Flags:
    flags: Flags = pc.fill_null(column, False).to_numpy(False)
    return flags
