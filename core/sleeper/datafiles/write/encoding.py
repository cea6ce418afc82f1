"""Which columns of a data file are written with a dictionary.

A dictionary makes a column of few values small, and one of many values slow to write and
larger than without (measured: two random texts and a number, 3.3 against 7.1 M rows/s,
76 against 57 MB). So the first rows of a file are looked at before it is begun.
"""

import pyarrow as pa
import pyarrow.compute as pc

from sleeper.datafiles.arrow import as_plain

# Twice as many cost an ingest into small files a tenth of its time.
_ROWS_LOOKED_AT = 4_096
_DISTINCT_SHARE_MAX = 1 / 3
# In a sample values repeat less than in the whole: 0.7 of 4,096 are about 5,000 values.
_DISTINCT_SHARE_OF_SAMPLE_MAX = 0.7


def dictionary_columns(first_rows: pa.Table) -> list[str]:
    """The Parquet paths of the columns whose values come three times or more on average.

    `first_rows` are the file's first row group; every so many of them are looked at, since
    in a sorted file neighbours are alike. What is inside lists and maps has a dictionary.
    """
    stride = max(1, first_rows.num_rows // _ROWS_LOOKED_AT)
    plain = [as_plain(column) for column in first_rows.columns]
    first_rows = pa.Table.from_arrays(plain, first_rows.schema.names)
    sample = first_rows.take(pa.array(range(0, first_rows.num_rows, stride), pa.int64()))
    share_max = _DISTINCT_SHARE_MAX if stride == 1 else _DISTINCT_SHARE_OF_SAMPLE_MAX
    return [
        path
        for field in first_rows.schema
        for path in _paths(field)
        if pa.types.is_nested(field.type) or _repeats(sample.column(field.name), share_max)
    ]


def _paths(field: pa.Field) -> list[str]:
    if pa.types.is_map(field.type):
        return [f"{field.name}.key_value.key", f"{field.name}.key_value.value"]
    if pa.types.is_list(field.type):
        return [f"{field.name}.list.{field.type.value_field.name}"]
    return [field.name]


def _repeats(values: pa.ChunkedArray, share_max: float) -> bool:
    try:
        distinct = pc.count_distinct(values, mode="all").as_py()
    except pa.ArrowNotImplementedError:
        return True
    return bool(distinct <= share_max * len(values))
