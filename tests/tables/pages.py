"""The pages of a Parquet file."""

from pathlib import Path

import pyarrow.parquet as pq

from sleeper.datafiles.engine.parquet_footer import _Reader

_DICTIONARY_PAGE = 2


def values_by_page(path: Path, group: int, column: int) -> list[int]:
    """Returns the number of values of each data page of a column in a row group."""
    with pq.ParquetFile(path) as file:
        chunk = file.metadata.row_group(group).column(column)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data = path.read_bytes()[start : start + chunk.total_compressed_size]
    reader = _Reader(data)
    pages = []
    while reader.at < len(data):
        kind, size, values = _header(reader)
        if kind != _DICTIONARY_PAGE:
            pages.append(values)
        reader.at += size
    return pages


def _header(reader: _Reader) -> tuple[int, int, int]:
    """Reads the type, compressed bytes and number of values of a page."""
    numbers, values = {}, 0
    for field, _ in reader.fields():
        if field <= 4:
            numbers[field] = reader.zigzag()
            continue
        for inner, kind in reader.fields():
            if inner == 1:
                values = reader.zigzag()
            else:
                reader.skip(kind)
    return numbers[1], numbers[3], values
