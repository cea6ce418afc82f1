"""Pages of JSON: full, with each row once and in order."""

import itertools
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.errors import InvalidRequestError
from sleeper.query.rows.json_pages import json_pages

ROWS = st.lists(st.text('ab"é\u2028', max_size=30), max_size=40)


def batches(rows: list[str], sizes: list[int]) -> list[pa.RecordBatch]:
    table = pa.table({"v": pa.array(rows, pa.string())})
    count, start = [], 0
    for size in [*sizes, len(rows)]:
        count += table.slice(start, size).combine_chunks().to_batches()
        start += size
    return count


@given(ROWS, st.lists(st.integers(0, 9), max_size=5), st.integers(80, 400), st.integers(1, 12))
def test_pages_contain_each_row_once_within_both_limits(rows, sizes, bytes_max, rows_max):
    pages = list(json_pages(batches(rows, sizes), bytes_max, rows_max))
    for page in pages:
        assert len(page.text.encode()) <= bytes_max
        assert 1 <= page.rows <= rows_max
        assert len(json.loads(page.text)) == page.rows
    assert [row["v"] for page in pages for row in json.loads(page.text)] == rows
    for page, current in itertools.pairwise(pages):
        first = json.dumps(json.loads(current.text)[0], ensure_ascii=False, separators=(",", ":"))
        has_no_room = len(page.text.encode()) + len(first.encode()) + 1 > bytes_max
        assert page.rows == rows_max or has_no_room


def test_row_larger_than_a_page_is_refused_with_its_size():
    rows = batches(["a", "b" * 500], [])
    pages = json_pages(rows, 300)
    assert next(pages).rows == 1
    with pytest.raises(InvalidRequestError, match=r"a row has 508 bytes.*maximum 300"):
        next(pages)


def test_no_pages_without_rows():
    assert list(json_pages(batches([], []), 100)) == []


def test_rows_contain_only_characters_that_sqs_accepts():
    text = "".join(map(chr, (*range(0x20), 0x22, 0x5C, 0x7F, 0xE9, 0xFFFD, 0xFFFE, 0xFFFF)))
    (page,) = json_pages([pa.record_batch({"t": [text, None, "plain"]})], 10_000)
    assert [row["t"] for row in json.loads(page.text)] == [text, None, "plain"]
    assert not any(ord(c) < 0x20 or ord(c) in (0xFFFE, 0xFFFF) for c in page.text)
