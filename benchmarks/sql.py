"""SQL: queries of TPC-H, beside DataFusion and DuckDB over the same data files."""

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import duckdb
from datafusion import SessionConfig, SessionContext

import sleeper
from benchmarks import tpch
from benchmarks.measuring import Task, Watch, run_by_turns
from benchmarks.result import OURS, Aim, Result, check, comparison, figure, ratios
from benchmarks.settings import Settings
from sleeper.opening import open_instance

ROWS = 6_000_000
_LEAVES = 8
_THREADS = 2
_RUNS = 5
_TABLES = ("lineitem", "orders", "customer", "part")
_NET = "l_extendedprice * (1 - l_discount)"
_QUERIES: Mapping[str, str] = {
    "1": f"""SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), sum({_NET}),
        sum({_NET} * (1 + l_tax)), avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
        FROM lineitem WHERE l_shipdate <= DATE '1998-09-02'
        GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus""",
    "3": f"""SELECT l_orderkey, sum({_NET}) AS revenue, o_orderdate, o_shippriority
        FROM customer, orders, lineitem
        WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
        AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority
        ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 10""",
    "6": """SELECT sum(l_extendedprice * l_discount) FROM lineitem
        WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
        AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
    "12": """SELECT l_shipmode,
        sum(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END),
        sum(CASE WHEN o_orderpriority NOT IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END)
        FROM orders, lineitem WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP')
        AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
        AND l_receiptdate >= DATE '1994-01-01' AND l_receiptdate < DATE '1995-01-01'
        GROUP BY l_shipmode ORDER BY l_shipmode""",
    "14": f"""SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN {_NET} ELSE 0 END)
        / sum({_NET}) FROM lineitem, part WHERE l_partkey = p_partkey
        AND l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-10-01'""",
}
_SCAN = f"SELECT count(*), sum(l_quantity), sum({_NET}), max(l_comment) FROM lineitem"
_KEY = f"{_SCAN} WHERE l_orderkey BETWEEN 100000 AND 100100"


def measure(settings: Settings) -> Result:
    scale = (settings.rows or ROWS) / tpch.LINEITEM_ROWS
    home = tpch.ingested(settings.folder, scale, _LEAVES)
    arguments = {"home": str(home)}
    engines = {OURS: ours, "DataFusion": data_fusion, "DuckDB": duck_db}
    tasks = {
        name: Task(__name__, function.__name__, arguments) for name, function in engines.items()
    }
    runs = run_by_turns(tasks, settings.repeats)
    turns = {name: [run.answer for run in results] for name, results in runs.items()}
    _check_same(turns)
    seconds = {
        name: [{query: answer[query]["seconds"] for query in answer} for answer in answers]
        for name, answers in turns.items()
    }
    shares = [
        _mean([theirs[query] / ours[query] for query in _QUERIES])
        for ours, theirs in zip(seconds[OURS], seconds["DataFusion"], strict=True)
    ]
    gains = [ours["scan"] / ours["key"] for ours in seconds[OURS]]
    figures = [figure("of DataFusion, geometric mean", shares, "×", Aim(0.8))]
    for query in _QUERIES:
        of_query = {name: [turn[query] for turn in each] for name, each in seconds.items()}
        figures.append(
            figure(
                f"query {query}, of DataFusion", ratios(of_query["DataFusion"], of_query[OURS]), "×"
            )
        )
    figures.append(figure("a key predicate, of the full scan", gains, "×", Aim(10)))
    comparisons = tuple(
        comparison(
            f"query {query}",
            {name: [turn[query] for turn in each] for name, each in seconds.items()},
            "s",
        )
        for query in _QUERIES
    )
    work = (
        f"TPC-H at scale {scale:g} in tables of {_LEAVES} leaves, a file each, keyed by order,"
        f" customer and part; {_THREADS} threads. A statement's time is the median of {_RUNS} runs"
        " in a process that opened its tables before; the results are equal. The key predicate"
        " selects 100 orders, and the full scan reads the same columns."
    )
    return Result("sql", work, tuple(figures), comparisons, (_DIFFERENCE,))


_DIFFERENCE = (
    "Sleeper finds the files of each statement in the tables' states, and takes and releases a hold"
    " on their versions. The others list the files once, before the first statement."
)


def ours(watch: Watch, home: str) -> dict[str, Any]:
    with sleeper.open_instance(home) as instance, watch:
        return _run(lambda query: _tuples(instance.sql(query).to_arrow()))


def data_fusion(watch: Watch, home: str) -> dict[str, Any]:
    config = (
        SessionConfig()
        .with_target_partitions(_THREADS)
        .set("datafusion.execution.listing_table_ignore_subdirectory", "false")
    )
    session = SessionContext(config)
    for name, folder in _folders(home).items():
        session.register_parquet(name, str(folder))
    with watch:
        return _run(lambda query: _tuples(session.sql(query).to_arrow_table()))


def duck_db(watch: Watch, home: str) -> dict[str, Any]:
    connection = duckdb.connect()
    connection.execute(f"SET threads = {_THREADS}")
    for name, folder in _folders(home).items():
        files = f"read_parquet('{folder}/**/*.parquet')"
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {files}")
    with watch:
        return _run(lambda query: connection.execute(query).fetchall())


def _folders(home: str) -> dict[str, Path]:
    instance = open_instance(home)
    ids = {name: instance.table(name).ref.id for name in _TABLES}
    instance.close()
    return {name: Path(home) / table_id / "data" for name, table_id in ids.items()}


def _tuples(table: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _run(execute: Callable[[str], list[tuple[Any, ...]]]) -> dict[str, Any]:
    """Returns the seconds and the result of each query."""
    return {
        name: _timed(partial(execute, query))
        for name, query in {**_QUERIES, "scan": _SCAN, "key": _KEY}.items()
    }


def _timed(execute: Callable[[], list[tuple[Any, ...]]]) -> dict[str, Any]:
    seconds = []
    result: list[tuple[Any, ...]] = []
    for _ in range(_RUNS):
        start = perf_counter()
        result = execute()
        seconds.append(perf_counter() - start)
    return {"seconds": median(seconds), "rows": [[_plain(v) for v in row] for row in result]}


def _plain(value: Any) -> Any:
    """Returns a value for JSON."""
    if isinstance(value, Decimal):
        return float(value)
    return value if isinstance(value, int | float | str) else str(value)


def _check_same(turns: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    first = turns[OURS][0]
    for name, answers in turns.items():
        for answer in answers:
            for query, expected in first.items():
                is_same = _are_same(answer[query]["rows"], expected["rows"])
                check(is_same, f"{name} returns other rows for query {query}")


def _are_same(rows: list[list[Any]], others: list[list[Any]]) -> bool:
    """Returns whether the rows are equal. Engines differ in the digits of averages."""
    pairs = zip((v for row in rows for v in row), (v for row in others for v in row), strict=False)
    are_close = all(
        math.isclose(one, other, rel_tol=1e-4) if isinstance(one, float) else one == other
        for one, other in pairs
    )
    return [len(row) for row in rows] == [len(row) for row in others] and are_close


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
