"""Values of `JSONType` as Python values, and back.

Numbers become `int` and `float`; one that no `float` is near, or of thousands of digits, becomes a
`Decimal`, or an infinite `float` if its exponent is beyond those of `Decimal`. A member that a row
lacks is missing in its dictionary.
"""

import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from sleeper.datafiles.arrow import as_json, is_json, json_storage

# Python refuses to make an integer of more than 4,300 digits.
_DIGITS_MAX = 4_000


def parse_json(text: str) -> Any:
    """Returns the value of a JSON text."""
    return json.loads(text, parse_float=_to_float, parse_int=_to_integer)


def write_json(value: Any) -> str:
    """Returns the JSON of a value. TypeError or ValueError if there is none."""
    match value:
        case None | bool() | str():
            return json.dumps(value, ensure_ascii=False)
        case int():
            return int.__repr__(value)
        case float() if math.isfinite(value):
            # Types of other libraries, such as NumPy's, have a text with their name.
            return float.__repr__(value)
        case Decimal() if value.is_finite():
            return str(value)
        case Mapping():
            return f"{{{','.join(_member(name, each) for name, each in value.items())}}}"
        case list() | tuple():
            return f"[{','.join(map(write_json, value))}]"
        case float() | Decimal():
            raise ValueError(f"{value} is no number of JSON")
    raise TypeError(f"{type(value).__name__} is no type of JSON")


def value_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Returns Python values as a column of the type, `None` as null."""
    if not is_json(kind):
        return pa.array(values, kind)
    texts = [None if each is None else write_json(each) for each in values]
    return as_json(pa.array(texts, pa.string()))


def python_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Returns the rows as dictionaries, in which values of `JSONType` are Python values."""
    rows: list[dict[str, Any]] = batch.to_pylist()
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not is_json(field.type):
            continue
        for row, text in zip(rows, json_storage(column).to_pylist(), strict=True):
            if text is None:
                # Results of SQL may have a name twice.
                row.pop(field.name, None)
            else:
                row[field.name] = parse_json(text)
    return rows


def _member(name: Any, value: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name {name!r:.100} is no text")
    return f"{json.dumps(name, ensure_ascii=False)}:{write_json(value)}"


def _to_float(digits: str) -> float | Decimal:
    number = float(digits)
    if math.isfinite(number):
        return number
    try:
        return Decimal(digits)
    except InvalidOperation:  # exponents of more than 18 digits
        return number


def _to_integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= _DIGITS_MAX else Decimal(digits)
