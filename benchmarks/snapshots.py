"""Loads of a snapshot table: their rate beside ingests and peers, their publication, and reads."""

from benchmarks.result import Comparison, Figure, Result
from benchmarks.settings import Settings
from benchmarks.snapshot_loads import FEW_ROWS, measure_publication, measure_refresh
from benchmarks.snapshot_reads import PERIOD_SECONDS, measure_reads

ROWS = 10_000_000
_SMALL_SHARE = 10
"""A small refresh has the rows of a large one, divided by this."""


def measure(settings: Settings) -> Result:
    rows = settings.rows or ROWS
    figures: list[Figure] = []
    comparisons: list[Comparison] = []
    for count in (rows // _SMALL_SHARE, rows):
        more, beside = measure_refresh(settings, count)
        figures += more
        comparisons += beside
    figures += measure_publication(settings, rows)
    figures += measure_reads(settings, rows)
    work = (
        f"Loads of {rows // _SMALL_SHARE:,} and {rows:,} unsorted rows in 8 Parquet files, which"
        " replace the rows of a load before: random keys and values of ten letters, and a long to"
        " sort by. Durable at its end. Publications are the commits of loads alone."
    )
    notes = (
        "delta-rs: `write_deltalake` with `mode='overwrite'`. DuckDB: `CREATE OR REPLACE TABLE`,"
        " also sorted, and a checkpoint. Lance: `write_dataset` with `mode='overwrite'`. Peers but"
        " the sorted one keep the order of the source, so that they find a key by a scan; Sleeper"
        " sorts, and writes key filters.",
        f"Readers during publications read a table of {FEW_ROWS:,} rows in one process, while"
        f" another replaces all of them every {PERIOD_SECONDS} s. Readers during a load read a"
        " table that another process loads without a pause, with both processors, as the ingest"
        " elsewhere does, of the same rows into an ordinary table.",
    )
    return Result("snapshots", work, tuple(figures), tuple(comparisons), notes)
