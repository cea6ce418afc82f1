"""Queries of DuckDB over a published table: in the environment `.venv/engines` of the tests."""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import duckdb_extension_avro
import duckdb_extension_httpfs
import duckdb_extension_iceberg
from pyiceberg.table import StaticTable

from benchmarks.measuring import Watch
from benchmarks.result import check

_THREADS = 2
_ROUNDS = 5
_SUMS = {
    "one column": ("sum(sort)", ("sort",)),
    "all columns": ("sum(sort), sum(length(key)), sum(length(value))", ("key", "sort", "value")),
}


def query(watch: Watch, metadata_url: str, rows: int) -> dict[str, Any]:
    """Returns how many times as long as `read_parquet` each way takes, by columns."""
    with watch:
        return {
            name: _ratios(metadata_url, f"count(*), {sums}", fields, rows)
            for name, (sums, fields) in _SUMS.items()
        }


def _ratios(url: str, values: str, fields: tuple[str, ...], rows: int) -> dict[str, float]:
    connection = _connect()
    files = _plan(url)

    def ask(source: str, session: duckdb.DuckDBPyConnection = connection) -> Any:
        return session.execute(f"SELECT {values} FROM {source}").fetchall()

    def ask_scanned(selected: tuple[str, ...]) -> Any:
        scan = StaticTable.from_metadata(url).scan(selected_fields=selected)
        session = scan.to_duckdb("scanned")
        session.execute(f"SET threads = {_THREADS}")
        return ask("scanned", session)

    ways: dict[str, Callable[[], Any]] = {
        "parquet": lambda: ask(f"read_parquet({files})"),
        "extension": lambda: ask(f"iceberg_scan('{url}')"),
        "planned": lambda: ask(f"read_parquet({_plan(url)})"),
        "selected": lambda: ask_scanned(fields),
        "all": lambda: ask_scanned(("*",)),
    }
    if len(fields) > 2:
        del ways["selected"]  # the same as all
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    expected = ways["parquet"]()
    check(expected[0][0] == rows, f"{expected[0][0]} rows of {rows}")
    for turn in range(_ROUNDS):
        for name in [*ways][:: -1 if turn % 2 else 1]:
            start = time.perf_counter()
            answer = ways[name]()
            seconds[name].append(time.perf_counter() - start)
            check(answer == expected, f"{name}: {answer} is not {expected}")
    anchor = seconds.pop("parquet")
    return {
        name: median(own / other for own, other in zip(times, anchor, strict=True))
        for name, times in seconds.items()
    }


def _plan(url: str) -> list[str]:
    """Returns the data files of the table, if they show all of their rows."""
    tasks = [*StaticTable.from_metadata(url).scan().plan_files()]
    check(not any(task.delete_files for task in tasks), "the table has delete files")
    return [task.file.file_path for task in tasks]


def _connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        config={"allow_unsigned_extensions": "true", "threads": str(_THREADS)}
    )
    for package in (duckdb_extension_avro, duckdb_extension_httpfs, duckdb_extension_iceberg):
        (extension,) = Path(package.__file__).parent.rglob("*.duckdb_extension")
        connection.execute(f"LOAD '{extension}'")
    return connection
