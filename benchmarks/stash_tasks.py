"""The tasks of the benchmark of stashes, each for a process of its own."""

import gzip
import json
import multiprocessing
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import SessionConfig, SessionContext

from benchmarks.measuring import Watch
from benchmarks.result import check
from benchmarks.rows import even_leaves, random_words
from sleeper.admin.tables import create_table
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.schema.model import Field, PrimitiveType, Schema, schema_to_json
from sleeper.stash import Stash
from sleeper.stash.run import run_stash

SCHEMA = Schema(
    (Field("key", PrimitiveType.STRING),),
    (),
    (
        Field("count", PrimitiveType.LONG),
        Field("text", PrimitiveType.STRING),
        Field("price", PrimitiveType.DOUBLE),
        Field("taken", PrimitiveType.TIMESTAMP),
    ),
)
_TABLE = "rows"
_OTHER = "other"
_ROWS_AT_ONCE = 500_000
_PIECE_BYTES = 2**40
_INGESTS = 100
_INGESTED_ROWS = 100
_CONTEXT: Any = multiprocessing.get_context("spawn")
# The fields that a stash adds to the rows alone.
_ADDED = (
    """key AS "~id", 'rows' AS "~table", 2 AS "~version", md5(concat(key, text)) AS "~signature","""
    """ false AS "~deleted", TIMESTAMP '2026-01-01 00:00:00' AS "~firstUpdateAt","""
    """ TIMESTAMP '2026-01-01 00:00:00' AS "~lastUpdateAt\""""
)


def make_table(folder: Path, rows: int, leaves: int = 1) -> Path:
    """An instance with a table of random rows, made once."""
    home = folder / f"stash-{rows}-{leaves}"
    if not (home / "done").exists():
        shutil.rmtree(home, ignore_errors=True)
        create_local_instance(home, "stash", {"sleeper.engine.threads": "1"})
        with opened(str(home)) as instance:
            text = schema_to_json(SCHEMA)
            points = sorted({str(leaf.region.ranges[0].min) for leaf in even_leaves(leaves)})[1:]
            create_table(instance, _TABLE, text, {}, points)
            create_table(instance, _OTHER, text)
            ingest_rows(instance, _TABLE, _random_rows(rows), "rows")
        (home / "done").touch()
    return home


def _random_rows(rows: int) -> Iterator[pa.RecordBatch]:
    random = np.random.default_rng(1)
    for start in range(0, rows, _ROWS_AT_ONCE):
        count = min(_ROWS_AT_ONCE, rows - start)
        times = pa.array(random.integers(17 * 10**14, 18 * 10**14, count))
        columns = {
            "key": random_words(random, count),
            "count": pa.array(random.integers(0, 2**40, count)),
            "text": random_words(random, count),
            "price": pa.array(np.round(1000 * random.random(count), 2)),
            "taken": times.cast(pa.timestamp("us", "UTC")),
        }
        yield from pa.table(columns).to_batches()


@contextmanager
def opened(home: str) -> Iterator[Instance]:
    instance = open_local_instance(Path(home))
    try:
        yield instance
    finally:
        instance.close()


def write(watch: Watch, home: str, out: str, rows: int, keeps: bool = False) -> dict[str, int]:
    """Makes a stash, whose documents are counted and summed beside the table."""
    shutil.rmtree(out, ignore_errors=True)
    with opened(home) as instance:
        with watch:
            result = run_stash(instance, out, [_TABLE], piece_bytes=_PIECE_BYTES)
        found = _sum_scan(instance)
    check(result.tables[0].rows == rows, f"{result.tables[0].rows} rows of {rows} in the stash")
    with Stash.open(out).scan(_TABLE) as scanned:
        lines = sum(len(block) for block in scanned.lines())
    with Stash.open(out).scan(_TABLE) as scanned:
        check(_sum(scanned.batches()) == found, "the rows of the stash are not those of the table")
    if not keeps:
        shutil.rmtree(out)
    return {"bytes": lines}


def data_folder(home: Path) -> str:
    """The folder of the data files of the table's only leaf."""
    with opened(str(home)) as instance:
        (file,) = (home / instance.table(_TABLE).ref.id / "data").glob("*/*.parquet")
    return str(file.parent)


def copy(watch: Watch, data: str, out: str, rows: int, as_documents: bool) -> None:
    """DataFusion's own copy of the data files to one gzipped file."""
    shutil.rmtree(out, ignore_errors=True)
    Path(out).mkdir(parents=True)
    session, path = _raw_session(), f"{out}/rows.json.gz"
    session.register_parquet("rows", data)
    what = f"SELECT *, {_ADDED} FROM rows" if as_documents else "SELECT * FROM rows"
    options = "STORED AS JSON OPTIONS ('format.compression' 'gzip')"
    with watch:
        (copied,) = session.sql(f"COPY ({what}) TO '{path}' {options}").collect()[0].to_pylist()
    check(copied["count"] == rows, f"{copied['count']} rows of {rows} were copied")
    shutil.rmtree(out)


def scan(watch: Watch, home: str, rows: int) -> None:
    with opened(home) as instance, watch:
        count = sum(batch.num_rows for batch in open_query(instance, _TABLE, Query()))
    check(count == rows, f"{count} rows of {rows}")


def read(watch: Watch, out: str, rows: int, kind: str) -> None:
    """Reads the stash by the product."""
    with Stash.open(out).scan(_TABLE) as scanned, watch:
        if kind == "batches":
            count = sum(batch.num_rows for batch in scanned.batches())
        elif kind == "lines":
            count = sum(block.count(b"\n") for block in scanned.lines())
        else:
            count = sum(1 for _ in scanned)
    check(count == rows, f"{count} rows of {rows}")


def read_raw(watch: Watch, out: str, rows: int) -> None:
    """DataFusion's own reading of the stash, with the types of the table."""
    session = _raw_session()
    with Stash.open(out).scan(_TABLE) as scanned:
        schema = scanned.schema
    session.register_json(
        "rows",
        str(_files(out)[0].parent),
        schema=schema,
        file_extension=".json.gz",
        file_compression_type="gzip",
    )
    with watch:
        stream = session.sql("SELECT * FROM rows").execute_stream()
        count = sum(batch.to_pyarrow().num_rows for batch in stream)
    check(count == rows, f"{count} rows of {rows}")


def read_by_python(watch: Watch, out: str, rows: int) -> None:
    count = 0
    with watch:
        for path in _files(out):
            with gzip.open(path) as lines:
                count += sum(1 for line in lines if json.loads(line))
    check(count == rows, f"{count} rows of {rows}")


def ingest_beside(watch: Watch, home: str, out: str, turns: int = 2) -> dict[str, list[float]]:
    """Returns percentiles of ingests without a stash, and ratios of those beside one."""
    found: dict[str, list[float]] = {
        f"{p}{unit}": [] for p in ("p50", "p99") for unit in ("", "_ms")
    }
    with opened(home) as instance, watch:
        _time_ingests(instance)
        for _ in range(turns):
            quiet = _time_ingests(instance)
            with _stashing(home, out):
                busy = _time_ingests(instance)
            for name, statistic in (("p50", median), ("p99", _p99)):
                found[f"{name}_ms"].append(1000 * statistic(quiet))
                found[name].append(statistic(busy) / statistic(quiet))
    shutil.rmtree(out, ignore_errors=True)
    return found


def _time_ingests(instance: Instance) -> list[float]:
    seconds = []
    for _ in range(_INGESTS):
        batches = [batch.slice(0, _INGESTED_ROWS) for batch in _random_rows(_INGESTED_ROWS)]
        start = perf_counter()
        ingest_rows(instance, _OTHER, batches)
        seconds.append(perf_counter() - start)
    return seconds


@contextmanager
def _stashing(home: str, out: str) -> Iterator[None]:
    """Another process makes stashes of the table, from before the context until it ends."""
    ready, end = _CONTEXT.Event(), _CONTEXT.Event()
    process = _CONTEXT.Process(target=stash_again, args=(home, out, ready, end))
    process.start()
    try:
        check(ready.wait(60), "no process makes a stash")
        yield
        check(process.is_alive(), "the process that makes stashes has ended")
    finally:
        end.set()
        process.join()


def stash_again(home: str, out: str, ready: Any, end: Any) -> None:
    with opened(home) as instance:
        while not end.is_set():
            ready.set()
            result = run_stash(instance, out, [_TABLE])
            check(result.tables[0].rows > 0, "the stash has no row")
            shutil.rmtree(Path(out) / result.root)


def _sum_scan(instance: Instance) -> tuple[int, int, float]:
    with closing(open_query(instance, _TABLE, Query())) as batches:
        return _sum(iter(batches))


def _sum(batches: Iterator[pa.RecordBatch]) -> tuple[int, int, float]:
    """The sums of the counts and the times, and of the prices in hundredths."""
    count = taken = 0
    price = 0.0
    for batch in batches:
        count += pc.sum(batch["count"]).as_py()
        # Sums of whole times would not fit a long.
        seconds = pc.divide(batch["taken"].cast(pa.int64()), 1_000_000)
        taken += pc.sum(seconds).as_py()
        price += pc.sum(pc.round(pc.multiply(batch["price"], 100))).as_py()
    return count, taken, price


def _files(out: str) -> list[Path]:
    return sorted(Path(out).glob(f"*/{_TABLE}/*.json.gz"))


def _raw_session() -> SessionContext:
    return SessionContext(SessionConfig().with_target_partitions(1))


def _p99(seconds: list[float]) -> float:
    return quantiles(seconds, n=100)[98]
