"""The check that keys ascend."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sleeper.datafiles.merge.key_runs import is_ascending
from sleeper.datafiles.write.key_facts import KeyFacts
from sleeper.errors import DataError
from sleeper.schema.model import Field, PrimitiveType, Schema

ENDS = ["", "a", "a\0", "b", "é", "\U0001d11e", "zz"]
texts = st.tuples(
    st.sampled_from(["", "abcd", "abcdefgh", "abcdefghij", "x" * 11]), st.sampled_from(ENDS)
).map("".join)
rows_strategy = st.lists(st.tuples(texts, st.integers(0, 2)), min_size=1, max_size=6)
kinds = st.sampled_from([pa.string_view(), pa.string(), pa.binary_view(), pa.binary()])
SCHEMA = Schema((Field("key", PrimitiveType.STRING),), (), ())


def make_keys(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Returns an array as the engine makes it: views of short values have no further buffer."""
    array = pa.array(values, kind)
    is_view = kind in (pa.string_view(), pa.binary_view())
    if is_view and all(len(v.encode() if isinstance(v, str) else v) <= 12 for v in values):
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2])
    return array


@example([("a", 1), ("a", 0)], False, pa.string_view(), 0)
@example([("a", 0), ("a\0", 0)], False, pa.string_view(), 0)
@example([("zzzza", 0), ("abcdb", 0)], False, pa.string_view(), 0)
@example([("abcdefghb", 0), ("abcdefgha", 0)], False, pa.string_view(), 0)
@given(rows_strategy, st.booleans(), kinds, st.integers(0, 2))
def test_keys_ascend_as_their_sorted_rows(
    rows: list[tuple[str, int]], are_sorted: bool, kind: pa.DataType, skipped: int
) -> None:
    skipped %= len(rows)
    by_bytes = [(text.encode(), number) for text, number in rows]
    by_bytes = sorted(by_bytes) if are_sorted else by_bytes
    is_text = kind in (pa.string_view(), pa.string())
    values = [v.decode() if is_text else v for v, _ in by_bytes]
    keys = [make_keys(values, kind).slice(skipped), pa.array([n for _, n in by_bytes][skipped:])]
    expected = by_bytes[skipped:]
    assert is_ascending(keys) == (expected == sorted(expected))
    assert is_ascending(keys[:1]) == ([v for v, _ in expected] == sorted(v for v, _ in expected))


def facts(*batches: list[Any]) -> KeyFacts:
    result = KeyFacts(SCHEMA, 14, 1024)
    for batch in batches:
        result.add([pa.record_batch({"key": pa.array(part, pa.string_view())}) for part in batch])
    return result


@pytest.mark.parametrize(
    "batches",
    [
        [[["b", "a"]]],
        [[["a", "c"], ["b"]]],
        [[["a", "c"]], [["b", "d"]]],
        [[["abcdefghijab", "abcdefghijaa"]]],
        [[["x" * 13 + "b", "x" * 13 + "a"]]],
    ],
)
def test_rows_out_of_order_fail(batches: list[Any]) -> None:
    with pytest.raises(DataError, match="rows are out of order between keys"):
        facts(*batches)


def test_facts_do_not_depend_on_batches() -> None:
    keys = [f"{n:05}" for n in range(3000)]
    parts = [keys[start : start + 70] for start in range(0, len(keys), 70)]
    one, turn, many = facts([keys]), facts([[], *parts]), facts(*([part] for part in parts))
    for other in (turn, many):
        assert (other.rows, other.bounds()) == (one.rows, one.bounds()) == (3000, other.bounds())
        assert other._sampler.samples() == one._sampler.samples()
