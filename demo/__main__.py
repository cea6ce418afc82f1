"""`python -m demo`: ingests, compacts and queries a year of flights.

Prints and runs `sleeper` commands only. The instance remains in `.demo/instance`.
"""

import shutil
import time
from pathlib import Path

from demo.commands import console, print_heading, run_shell, run_sleeper
from demo.flights import PreparedData, prepare

_ROOT = Path(".demo")
_INSTANCE = _ROOT / "instance"
_STASH = _ROOT / "stash"
# A year of flights has fewer rows than the default threshold of 1,000,000,000.
_SPLIT_THRESHOLD = 40_000
_MONTHS_PER_RUN = 4


def main() -> None:
    """Runs the demo; exits if a command fails."""
    start = time.monotonic()
    shutil.rmtree(_ROOT, ignore_errors=True)
    print_heading("Data: all flights from New York in 2013, with aircraft, airports and weather")
    data = prepare(_ROOT / "data")
    console.print(
        f"  {data.table('flights').rows:,} flights in {len(data.table('flights').files)} monthly "
        f"files, with the keys aircraft and scheduled departure.\n"
        f"  {data.flights_of_unknown_aircraft:,} of them have no aircraft and get the key "
        "[bold]unknown[/bold]."
    )
    _create(data)
    _ingest_small_tables(data)
    flights = data.table("flights").files
    for first in range(0, len(flights), _MONTHS_PER_RUN):
        print_heading("Ingest four months")
        for file in flights[first : first + _MONTHS_PER_RUN]:
            _sleeper("ingest", "flights", str(file))
        print_heading("Run background work: split large leaves, compact small files")
        _sleeper("run", "--until-idle")
    print_heading("Report on the table")
    _sleeper("report", "tables")
    _sleeper("report", "partitions", "--table", "flights")
    _sleeper("report", "compaction-jobs", "--table", "flights")
    _query()
    _stash()
    seconds = time.monotonic() - start
    print_heading(f"Finished in {seconds:.0f} s. The instance is in {_INSTANCE.resolve()}")
    console.print(
        "  Try more commands:\n"
        f"    export SLEEPER_INSTANCE={_INSTANCE}\n"
        "    .venv/bin/sleeper report all\n"
        "    .venv/bin/sleeper query flights --key N14228 --format csv\n"
        '    .venv/bin/sleeper sql "SELECT origin, avg(wind_speed) FROM weather GROUP BY origin"'
    )


def _create(data: PreparedData) -> None:
    print_heading("Create an instance and its tables")
    _sleeper("instance", "create")
    for table in data.tables:
        options = ["--schema", str(table.schema_file)]
        if table.name == "flights":
            options += ["--set", f"sleeper.table.partition.splitting.threshold={_SPLIT_THRESHOLD}"]
        _sleeper("table", "create", table.name, *options)


def _ingest_small_tables(data: PreparedData) -> None:
    print_heading("Ingest aircraft and airports from CSV, airlines and weather from JSON lines")
    for table in data.tables:
        if table.name != "flights":
            _sleeper("ingest", table.name, *(str(f) for f in table.files))


def _query() -> None:
    print_heading("Query by key: flights of one aircraft, in order of departure")
    _sleeper(
        "query", "flights", "--key", "N14228",
        "--columns", "tailnum,month,day,origin,dest,dep_delay", "--limit", "8",
    )  # fmt: skip
    print_heading("Query by range: aircraft with numbers that start with N10")
    _sleeper(
        "query", "flights", "--range", "N10:N11",
        "--columns", "tailnum,month,day,carrier,flight,origin,dest", "--limit", "5",
    )  # fmt: skip
    print_heading("SQL with a join: flights and mean delay by manufacturer")
    _sleeper(
        "sql",
        "SELECT p.manufacturer, count(*) AS flights, round(avg(f.dep_delay), 1) AS mean_delay "
        "FROM flights f JOIN planes p ON f.tailnum = p.tailnum "
        "GROUP BY p.manufacturer HAVING count(*) > 5000 ORDER BY flights DESC",
    )


def _stash() -> None:
    print_heading("Stash: a copy of the tables that any program can read")
    _sleeper(
        "stash", "run", "--destination", str(_STASH), "--table", "planes", "--table", "airports"
    )
    latest = (_STASH / "_LATEST").read_text()
    run_shell(f"zcat {_STASH / latest}/planes/*.json.gz | head -n 2")
    print_heading("Read it back, without the instance")
    run_shell(f"sleeper stash scan airports --destination {_STASH} | wc -l")


def _sleeper(*arguments: str) -> None:
    run_sleeper(_INSTANCE, *arguments)


if __name__ == "__main__":
    main()
