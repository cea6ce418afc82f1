"""Which columns of a data file are written with a dictionary.

A dictionary makes a column of few values small, and one of many values slow to write and
larger than without (measured: two random texts and a number, 3.3 against 7.1 M rows/s,
76 against 57 MB). So the first rows of a file are looked at before it is begun.
"""

import pyarrow as pa
import pyarrow.compute as pc

_ROWS_LOOKED_AT = 20_000
_REPEATS_MIN = 3


def dictionary_columns(first_rows: pa.Table) -> list[str]:
    """The Parquet paths of the columns whose values come three times or more on average.

    `first_rows` are the file's first row group; every so many of them are looked at, since
    in a sorted file neighbours are alike. What is inside lists and maps has a dictionary.
    """
    stride = max(1, first_rows.num_rows // _ROWS_LOOKED_AT)
    sample = first_rows.take(pa.array(range(0, first_rows.num_rows, stride), pa.int64()))
    return [
        path
        for field in first_rows.schema
        for path in _paths(field)
        if pa.types.is_nested(field.type) or _repeats(sample.column(field.name))
    ]


def _paths(field: pa.Field) -> list[str]:
    if pa.types.is_map(field.type):
        return [f"{field.name}.key_value.key", f"{field.name}.key_value.value"]
    if pa.types.is_list(field.type):
        return [f"{field.name}.list.{field.type.value_field.name}"]
    return [field.name]


def _repeats(values: pa.ChunkedArray) -> bool:
    try:
        distinct = pc.count_distinct(values, mode="all").as_py()
    except pa.ArrowNotImplementedError:
        return True
    return bool(distinct * _REPEATS_MIN <= len(values))
