"""Footers of some row groups, and torn footers."""

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sleeper.datafiles.engine.parquet_footer import TAIL_BYTES, footer_length, split_footer

TABLE = pa.table(
    {
        "key": [f"k{n:05d}" for n in range(400)],
        "bytes": [bytes([n % 7]) * (n % 40) for n in range(400)],
        "list": [[n] * (n % 3) for n in range(400)],
        "map": pa.array([[("a", n)] for n in range(400)], pa.map_(pa.string(), pa.int64())),
        "flag": [None if n % 5 == 0 else n % 2 == 0 for n in range(400)],
        "time": pa.array(range(400), pa.timestamp("us", "UTC")),
    }
)


def write_parquet(row_groups: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(
        TABLE,
        sink,
        row_group_size=400 // row_groups,
        write_page_index=True,
        write_page_checksum=True,
        sorting_columns=[pq.SortingColumn(0)],
        store_decimal_as_integer=True,
    )
    return sink.getvalue()


FILES = {n: write_parquet(n) for n in (1, 2, 14, 15, 16, 200)}


def read_footer(content: bytes) -> bytes:
    length = footer_length(content[-TAIL_BYTES:])
    return content[-length - TAIL_BYTES : -TAIL_BYTES]


@pytest.mark.parametrize("row_groups", FILES)
def test_footer_of_all_row_groups_is_identical(row_groups: int) -> None:
    content = FILES[row_groups]
    parts = split_footer(read_footer(content))
    groups = range(len(parts.row_groups))
    assert content.endswith(parts.with_row_groups(groups, TABLE.num_rows))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_footer_of_some_row_groups_has_their_rows(data: st.DataObject) -> None:
    content = FILES[data.draw(st.sampled_from(sorted(FILES)))]
    whole = pq.ParquetFile(io.BytesIO(content))
    groups = sorted(data.draw(st.sets(st.integers(0, whole.num_row_groups - 1))))
    rows = sum(whole.metadata.row_group(i).num_rows for i in groups)
    footer = read_footer(content)
    fewer = content[: -len(footer) - TAIL_BYTES]
    fewer += split_footer(footer).with_row_groups(groups, rows)
    result = pq.ParquetFile(io.BytesIO(fewer), page_checksum_verification=True)
    assert (result.metadata.num_rows, result.num_row_groups) == (rows, len(groups))
    assert result.read().equals(whole.read_row_groups(groups))


# A map and a list with huge counts of booleans.
@example(b"\x1b\xff\xff\xff\xff\xff\xff\xff\x7f\x11")
@example(b"\x19\xf1\xff\xff\xff\xff\xff\xff\xff\x7f")
@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=60))
def test_invalid_footer_is_refused(data: bytes) -> None:
    try:
        split_footer(data)
    except ValueError:
        return
    assert len(data) > 4


def test_torn_footer_is_refused() -> None:
    footer = read_footer(FILES[2])
    parts = split_footer(footer)
    for end in range(len(footer) - len(parts.after)):
        with pytest.raises(ValueError, match="footer"):
            split_footer(footer[:end])


@pytest.mark.parametrize("tail", [b"", b"PAR1", b"\0\0\0\0PAR2", b"\0" * 8])
def test_file_without_footer_is_refused(tail: bytes) -> None:
    with pytest.raises(ValueError, match="has no Parquet footer"):
        footer_length(tail)


def test_datafusion_reads_a_footer_of_some_row_groups(tmp_path: Path) -> None:
    from datafusion import SessionContext

    content = FILES[16]
    footer = read_footer(content)
    path = tmp_path / "some.parquet"
    path.write_bytes(
        content[: -len(footer) - TAIL_BYTES] + split_footer(footer).with_row_groups([3, 9], 50)
    )
    result = SessionContext().read_parquet(str(path)).to_arrow_table()
    assert result.column("key").to_pylist() == [
        f"k{n:05d}" for n in (*range(75, 100), *range(225, 250))
    ]
