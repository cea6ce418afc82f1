"""DuckDB: sorts and groups into one Parquet file, looks keys up, and copies rows as JSON lines."""

import shutil
import warnings
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.measuring import Watch
from benchmarks.peers.asking import Question, ask
from benchmarks.result import check

# The level that the product's writer takes, and what DuckDB adds by itself is left as it is.
_AS_PARQUET = "(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1)"
_ORDER = "ORDER BY key, sort"


def compact(watch: Watch, inputs: list[str], output: str, **bounds: Any) -> None:
    _copy(watch, f"SELECT * FROM read_parquet({inputs}) {_ORDER}", output, **bounds)


def aggregate(watch: Watch, inputs: list[str], output: str, **bounds: Any) -> None:
    # A sum of BIGINT is a HUGEINT, which Parquet has not.
    values = "sum(total)::BIGINT AS total, min(least) AS least, max(greatest) AS greatest"
    rows = f"SELECT key, sort, {values} FROM read_parquet({inputs}) GROUP BY key, sort {_ORDER}"
    _copy(watch, rows, output, **bounds)


def ingest_text(
    watch: Watch,
    inputs: list[str],
    types: dict[str, str],
    is_json: bool,
    output: str,
    **bounds: Any,
) -> None:
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    text = f"read_json({inputs}, format = 'newline_delimited'" if is_json else f"read_csv({inputs}"
    rows = f"SELECT * FROM {text}, columns = {types})"
    _copy(watch, f"{rows} {_ORDER}", output, **bounds)


def upsert(watch: Watch, rows: str, changes: str, home: str, threads: int) -> dict[str, int]:
    shutil.rmtree(home, ignore_errors=True)
    Path(home).mkdir(parents=True)
    session = duckdb.connect(f"{home}/rows.db")
    session.execute(f"SET threads = {threads}")
    session.execute("CREATE TABLE rows (key BIGINT PRIMARY KEY, value BIGINT, text VARCHAR)")
    session.execute(f"INSERT INTO rows SELECT * FROM read_parquet('{rows}')")
    session.execute("CHECKPOINT")
    with watch:
        session.execute(f"INSERT OR REPLACE INTO rows SELECT * FROM read_parquet('{changes}')")
    count, total = session.execute("SELECT count(*), sum(value) FROM rows").fetchall()[0]
    session.close()
    shutil.rmtree(home)
    return {"rows": count, "sum": int(total)}


def overwrite(
    watch: Watch, source: str, home: str, rows: int, threads: int, is_sorted: bool = False
) -> dict[str, int]:
    shutil.rmtree(home, ignore_errors=True)
    Path(home).mkdir(parents=True)
    session = duckdb.connect(f"{home}/rows.db")
    session.execute(f"SET threads = {threads}")
    content = f"SELECT * FROM read_parquet('{source}/*.parquet')"
    session.execute(f"CREATE TABLE rows AS {content} LIMIT {min(rows, 10_000)}")
    session.execute("CHECKPOINT")
    with watch:
        order = _ORDER if is_sorted else ""
        session.execute(f"CREATE OR REPLACE TABLE rows AS {content} {order}")
        session.execute("CHECKPOINT")
    ((count,),) = session.execute("SELECT count(*) FROM rows").fetchall()
    session.close()
    shutil.rmtree(home)
    return {"rows": count}


def copy(watch: Watch, data: str, out: str) -> None:
    shutil.rmtree(out, ignore_errors=True)
    Path(out).mkdir(parents=True)
    rows = f"SELECT * FROM read_parquet('{data}/**/*.parquet')"
    session = duckdb.connect()
    session.execute("SET threads = 1")
    with watch:
        session.execute(f"COPY ({rows}) TO '{out}/rows.json.gz' (FORMAT json, COMPRESSION gzip)")
    shutil.rmtree(out)


def read_json(watch: Watch, out: str, rows: int) -> None:
    session = duckdb.connect()
    session.execute("SET threads = 1")
    content = f"SELECT * FROM read_json('{out}/*/rows/*.json.gz', format = 'newline_delimited')"
    count = 0
    with watch:
        reader = session.sql(content).to_arrow_reader()
        count = sum(batch.num_rows for batch in reader)
    check(count == rows, f"{count} rows of {rows}")


def lookup(watch: Watch, files: list[str], questions: str, threads: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    session = duckdb.connect()
    session.execute(f"SET threads = {threads}")
    session.execute("SET parquet_metadata_cache = true")
    session.execute(f"CREATE VIEW rows AS SELECT * FROM read_parquet({files})")

    def answer(question: Question) -> Any:
        if question.keys is None:
            bounds = "SELECT * FROM rows WHERE key >= ? AND key < ?"
            return session.sql(f"{bounds} {_ORDER}", params=[question.low, question.high])
        if len(question.keys) == 1:
            return session.sql("SELECT * FROM rows WHERE key = ?", params=question.keys)
        # Half as fast again as a list of so many literals.
        requested = "(SELECT unnest(?) AS key) AS asked"
        joined = f"SELECT rows.* FROM rows JOIN {requested} USING (key)"
        return session.sql(joined, params=[question.keys])

    return ask(watch, questions, lambda question: answer(question).to_arrow_table())


def _copy(
    watch: Watch, rows: str, output: str, spill: str, memory_bytes: int, threads: int
) -> None:
    session = duckdb.connect()
    session.execute(f"SET threads = {threads}")
    session.execute(f"SET memory_limit = '{memory_bytes >> 20} MiB'")
    session.execute(f"SET temp_directory = '{spill}'")
    with watch:
        session.execute(f"COPY ({rows}) TO '{output}' {_AS_PARQUET}")
