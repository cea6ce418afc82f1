"""The prepared files match their source."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest

from demo.flights import PreparedData, prepare, read_source, report
from sleeper.schema.model import schema_from_json

SOURCES = {
    "flights": "flights.csv.zip",
    "planes": "planes.csv",
    "airports": "airports.csv",
    "airlines": "airlines.csv",
    "weather": "weather.csv",
}
NEW_YORK = ZoneInfo("America/New_York")

Rows = Callable[[str], pa.Table]


def _read_csv(path: Path) -> pa.Table:
    return pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(strings_can_be_null=True))


READERS = {".parquet": pq.read_table, ".csv": _read_csv, ".jsonl": pa.json.read_json}


def _counts(column: pa.ChunkedArray) -> Counter[str | None]:
    return Counter(column.to_pylist())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepare(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def rows(data: PreparedData) -> Rows:
    read = {
        table.name: pa.concat_tables(READERS[path.suffix](path) for path in table.files)
        for table in data.tables
    }
    return read.__getitem__


def test_files_contain_all_flights(data: PreparedData, rows: Rows) -> None:
    assert data.table("flights").rows == rows("flights").num_rows == 336_776
    assert len(data.table("flights").files) == 12


def test_each_flights_file_contains_one_month(data: PreparedData) -> None:
    months = [pc.unique(pq.read_table(f)["month"]).to_pylist() for f in data.table("flights").files]
    assert months == [[month] for month in range(1, 13)]


@pytest.mark.parametrize("name", SOURCES)
def test_columns_keep_their_sums_and_nulls(name: str, rows: Rows) -> None:
    source, output = read_source(SOURCES[name]), rows(name)
    assert output.num_rows == source.num_rows
    for column in set(source.column_names) - {"tailnum"}:
        expected, result = source[column], output[column]
        assert result.null_count == expected.null_count, column
        if pa.types.is_integer(expected.type):
            assert pc.sum(result) == pc.sum(expected), column
        elif pa.types.is_floating(expected.type):
            assert pc.sum(result).as_py() == pytest.approx(pc.sum(expected).as_py()), column
        elif pa.types.is_string(expected.type):
            assert _counts(result) == _counts(expected), column


def test_flights_without_a_tail_number_have_the_key_unknown(data: PreparedData, rows: Rows) -> None:
    source = read_source("flights.csv.zip")["tailnum"]
    output = rows("flights")["tailnum"]
    assert source.null_count == data.flights_of_unknown_aircraft == 2_512
    assert pc.sum(pc.equal(output, "unknown")).as_py() == 2_512
    assert output.null_count == 0


def test_scheduled_departure_matches_new_york_local_time(rows: Rows) -> None:
    """Compares every distinct minute of the year with the time zone database."""
    local = rows("flights").group_by(["year", "month", "day", "sched_dep_time", "sched_dep"])
    distinct = local.aggregate([]).to_pylist()
    assert len(distinct) > 100_000
    for row in distinct:
        hour, minute = divmod(row["sched_dep_time"], 100)
        due = datetime(row["year"], row["month"], row["day"], hour, minute, tzinfo=NEW_YORK)
        assert row["sched_dep"] == due.timestamp() * 1000


def test_weather_key_is_the_hour_in_milliseconds(rows: Rows) -> None:
    weather = rows("weather")
    assert weather.slice(0, 1)["time"].to_pylist() == [
        datetime(2013, 1, 1, 6, tzinfo=UTC).timestamp() * 1000
    ]
    assert weather.group_by(["origin", "time"]).aggregate([]).num_rows == weather.num_rows


@pytest.mark.parametrize("name", SOURCES)
def test_schema_matches_columns_and_nullability(name: str, data: PreparedData, rows: Rows) -> None:
    schema = schema_from_json(data.table(name).schema_file.read_text())
    output = rows(name)
    assert {f.name for f in schema.fields} == set(output.column_names)
    with_nulls = {n for n in output.column_names if output[n].null_count}
    assert {f.name for f in schema.fields if f.nullable} == with_nulls


def test_prepare_is_deterministic(data: PreparedData, tmp_path: Path) -> None:
    again = prepare(tmp_path)
    for previous, current in zip(data.tables, again.tables, strict=True):
        assert [f.read_bytes() for f in previous.files] == [f.read_bytes() for f in current.files]


def test_report_counts_flights_without_a_tail_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report(tmp_path)
    assert "2,512 flights have no tail number" in capsys.readouterr().out
