"""chDB, which is ClickHouse in a process: sorts and groups into one Parquet file."""

from pathlib import Path
from typing import Any

from chdb.session import Session

from benchmarks.measuring import Watch

_ORDER = "ORDER BY key, sort"


def compact(watch: Watch, inputs: list[str], output: str, **bounds: Any) -> None:
    _insert(watch, f"SELECT * FROM {_files(inputs)} {_ORDER}", output, **bounds)


def aggregate(watch: Watch, inputs: list[str], output: str, **bounds: Any) -> None:
    # Other names inside: it takes an alias for the column that it stands for.
    values = "sum(r.total) AS total, min(r.least) AS least, max(r.greatest) AS greatest"
    rows = f"SELECT key, sort, {values} FROM {_files(inputs)} AS r GROUP BY key, sort {_ORDER}"
    _insert(watch, rows, output, **bounds)


def _files(inputs: list[str]) -> str:
    """All of one folder."""
    folder = Path(inputs[0]).parent
    names = ",".join(Path(item).name for item in inputs)
    return f"file('{folder}/{{{names}}}', 'Parquet')"


def _insert(
    watch: Watch, rows: str, output: str, spill: str, memory_bytes: int, threads: int
) -> None:
    settings = {
        "max_threads": threads,
        "max_memory_usage": memory_bytes,
        # Sorts and groups go to disk at half of that: what is being written needs room too.
        "max_bytes_before_external_sort": memory_bytes // 2,
        "max_bytes_ratio_before_external_sort": 0,
        "max_bytes_before_external_group_by": memory_bytes // 2,
        "max_bytes_ratio_before_external_group_by": 0,
        "output_format_parquet_compression_method": "'zstd'",
        "output_format_compression_level": 1,
    }
    arguments = ", ".join(f"{name} = {value}" for name, value in settings.items())
    with Session(spill) as session, watch:
        session.query(
            f"INSERT INTO FUNCTION file('{output}', 'Parquet') {rows} SETTINGS {arguments}"
        )
