"""Times and dates as keys of LongType: microseconds since 1970, or an error."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.errors import InvalidRequestError

SCHEMA = {
    "rowKeyFields": [{"name": "key", "type": "LongType"}],
    "sortKeyFields": [{"name": "sort", "type": "LongType"}],
    "valueFields": [{"name": "v", "type": "LongType"}],
}
SECOND, DAY = 1_000_000, 86_400_000_000


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.timestamp("us", "UTC"), [5, -7], [-7, 5]),
        (pa.timestamp("s"), [1, -2], [-2 * SECOND, SECOND]),
        (pa.timestamp("ms", "Europe/Oslo"), [3], [3000]),
        (pa.timestamp("ns"), [4000], [4]),
        (pa.date32(), [2, -1], [-DAY, 2 * DAY]),
        (pa.date64(), [86_400_000], [DAY]),
        (pa.dictionary(pa.int32(), pa.date32()), [1], [DAY]),
    ],
)
def test_times_and_dates_are_microseconds(
    tmp_path: Path, kind: pa.DataType, values: list[int], expected: list[int]
) -> None:
    if pa.types.is_dictionary(kind):
        column = pa.array(values, kind.value_type).dictionary_encode()
    else:
        column = pa.array(values, kind)
    rows = pa.table({"key": column, "sort": column, "v": [*range(len(values))]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    with sleeper.create_instance(tmp_path / "instance") as instance:
        table = instance.create_table("rows", SCHEMA)
        table.ingest(rows)
        table.ingest(str(tmp_path / "rows.parquet"))
        found = table.query().to_arrow()
        assert found["key"].to_pylist() == sorted(expected * 2)
        assert found["key"] == found["sort"]


@pytest.mark.parametrize(
    ("name", "kind", "value", "reason"),
    [
        ("key", pa.timestamp("ns"), 1, "would lose data"),
        ("key", pa.timestamp("s"), 2**60, "out of bounds"),
        ("sort", pa.date32(), 2**31 - 1, "out of bounds"),
        ("v", pa.timestamp("us"), 1, "expected LongType"),
        ("key", pa.time64("us"), 1, "expected LongType"),
    ],
)
def test_what_is_lost_or_no_key_is_refused(
    tmp_path: Path, name: str, kind: pa.DataType, value: int, reason: str
) -> None:
    columns = {each: pa.array([1]) for each in ("key", "sort", "v")}
    columns[name] = pa.array([value], kind)
    with sleeper.create_instance(tmp_path / "instance") as instance:
        table = instance.create_table("rows", SCHEMA)
        with pytest.raises(InvalidRequestError, match=f"{name}.*{reason}"):
            table.ingest(pa.table(columns))
