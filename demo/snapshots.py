"""`python -m demo.snapshots`: copies tables of a PostgreSQL server that lose rows.

A table of airlines is copied by adapters into a table sink, which upserts, and into a snapshot
table: after four rows are inserted, one more is, one is deleted, and one more is inserted. Then a
year of flights is copied, and again without the cancelled ones.

The server is PostgreSQL's own, started for the demo. The instance remains in
`.demo/snapshots/instance`.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from rich.table import Table

import sleeper
from demo.commands import console, print_heading, run_sleeper
from demo.flights import prepare
from tests.servers.postgres import Postgres, find_postgres, postgres

_ROOT = Path(".demo/snapshots")
_INSTANCE = _ROOT / "instance"
_PASSWORD = "DEMO_PASSWORD"

TABLE_SINK, SNAPSHOT = "airlines", "airlines_snapshot"
"""The two copies of the airlines: a table whose rows are upserted, and a snapshot table."""
SINKS = {TABLE_SINK: "sleeper.table.rows=latest", SNAPSHOT: "sleeper.table.type=snapshot"}

Run = Callable[..., None]
"""Runs a `sleeper` command."""
Rows = dict[str, str]
"""Names of airlines by carrier."""


@dataclass(frozen=True, slots=True)
class Step:
    """A change of the airlines in the database."""

    what: str
    statement: str


STEPS = (
    Step(
        "Four airlines",
        "INSERT INTO airlines VALUES ('AA', 'American Airlines'), ('DL', 'Delta Air Lines'),"
        " ('UA', 'United Air Lines'), ('US', 'US Airways')",
    ),
    Step("JetBlue is inserted", "INSERT INTO airlines VALUES ('B6', 'JetBlue Airways')"),
    Step("US Airways is deleted", "DELETE FROM airlines WHERE carrier = 'US'"),
    Step("Virgin America is inserted", "INSERT INTO airlines VALUES ('VX', 'Virgin America')"),
)


@dataclass(frozen=True, slots=True)
class Copies:
    """The rows of the database and of its two copies."""

    source: Rows
    table_sink: Rows
    snapshot: Rows


def main() -> None:
    """Runs the demo; exits if a command fails."""
    if find_postgres("postgres") is None:
        sys.exit("demo: PostgreSQL is not installed: run make demo-snapshots")
    start = time.monotonic()
    shutil.rmtree(_ROOT, ignore_errors=True)
    print_heading("Data: a year of flights and the airlines, in a PostgreSQL server")
    data = prepare(_ROOT / "data")

    def run(*arguments: str) -> None:
        run_sleeper(_INSTANCE, *arguments)

    with postgres() as database:
        os.environ[_PASSWORD] = database.password
        run("instance", "create")
        prepare_airlines(database, data.table("airlines").schema_file, run)
        for step in STEPS:
            print_heading(f"{step.what}: {step.statement}")
            _print_copies(take_step(step, database, _INSTANCE, run))
        run("snapshot", "versions", SNAPSHOT)
        _copy_flights(database, data.table("flights").schema_file, run)
    seconds = time.monotonic() - start
    print_heading(f"Finished in {seconds:.0f} s. The instance is in {_INSTANCE.resolve()}")


def prepare_airlines(database: Postgres, schema_file: Path, run: Run) -> None:
    """Creates the table in the database, both sinks, and an adapter for each."""
    database.run("CREATE TABLE airlines (carrier text PRIMARY KEY, name text NOT NULL)")
    print_heading("A table sink that upserts, a snapshot table, and an adapter for each")
    for sink, setting in SINKS.items():
        run("table", "create", sink, "--schema", str(schema_file), "--set", setting)
        _create_adapter(database, "airlines", sink, run)


def take_step(step: Step, database: Postgres, instance: Path, run: Run) -> Copies:
    """Changes the database, runs both adapters, and returns what the copies show."""
    database.run(step.statement)
    for sink in SINKS:
        run("adapter", "run", sink)
    lines = database.run("SELECT carrier, name FROM airlines ORDER BY carrier")
    source = dict(line.split("|") for line in lines)
    with sleeper.open_instance(str(instance)) as opened:
        table_sink, snapshot = (
            dict(zip(*(opened.table(sink).query().to_arrow().to_pydict().values()), strict=True))
            for sink in (TABLE_SINK, SNAPSHOT)
        )
    return Copies(source, table_sink, snapshot)


def _create_adapter(database: Postgres, table: str, sink: str, run: Run) -> None:
    run(
        "adapter", "create", sink, "--source", database.url, "--table", table,
        "--password", f"env:{_PASSWORD}", "--sink", sink,
    )  # fmt: skip


def _print_copies(copies: Copies) -> None:
    table = Table("carrier", "PostgreSQL", "table sink", "snapshot table")
    for carrier in sorted({*copies.source, *copies.table_sink, *copies.snapshot}):
        name = copies.source.get(carrier, "")
        cells = []
        for copy in (copies.table_sink, copies.snapshot):
            found = copy.get(carrier, "")
            cells.append(found if found == name else f"[red]{found or 'missing'}[/red]")
        table.add_row(carrier, name, *cells)
    console.print()
    console.print(table)


def _copy_flights(database: Postgres, schema_file: Path, run: Run) -> None:
    print_heading("A year of flights: PostgreSQL to a snapshot table")
    _fill_flights(database, schema_file.parent)
    run(
        "table", "create", "flights", "--schema", str(schema_file),
        "--set", "sleeper.table.type=snapshot",
        "--set", "sleeper.table.snapshot.min.versions=2",
    )  # fmt: skip
    _create_adapter(database, "flights", "flights", run)
    run("adapter", "run", "flights")
    print_heading("The cancelled flights are deleted: DELETE FROM flights WHERE dep_time IS NULL")
    database.run("DELETE FROM flights WHERE dep_time IS NULL")
    run("adapter", "run", "flights")
    count = "SELECT count(*) AS flights, count(*) - count(dep_time) AS cancelled FROM flights"
    run("sql", count)
    run("snapshot", "versions", "flights")
    with sleeper.open_instance(str(_INSTANCE)) as instance:
        before = instance.table("flights").snapshot_versions()[-1].number
    run("sql", count, "--as-of", str(before))


def _fill_flights(database: Postgres, folder: Path) -> None:
    """Creates the flights in the database, by COPY."""
    flights = pa.concat_tables(map(pq.read_table, sorted(folder.glob("flights-*.parquet"))))
    path = folder / "flights.csv"
    pyarrow.csv.write_csv(flights, path)
    kinds = {pa.int32(): "integer", pa.int64(): "bigint", pa.string(): "text"}
    columns = ", ".join(
        f"{field.name} {kinds.get(field.type, 'timestamptz')}" for field in flights.schema
    )
    database.run(f"CREATE TABLE flights ({columns});\n\\copy flights FROM '{path}' CSV HEADER\n")


if __name__ == "__main__":
    main()
