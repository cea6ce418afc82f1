"""Adjunct stores: the rates of loads, the time of lookups, and the pause while versions switch.

`benchmarks.adjunct_spark` measures the enrichment of rows in Spark.
"""

from benchmarks.adjunct_tasks import make_sources
from benchmarks.measuring import Measured, Task, run_by_turns
from benchmarks.result import Aim, Figure, Result, figure, ratios
from benchmarks.settings import Settings

_ROWS = 10_000_000
_SWITCHED_ROWS = 300_000
_MODULE = "benchmarks.adjunct_tasks"
_TYPES = ("rocksdb", "memory")


def measure(settings: Settings) -> Result:
    rows = settings.rows or _ROWS
    home, file = map(str, make_sources(settings.folder, rows))
    common = {"home": home, "rows": rows}
    loads = {
        "table, rocksdb": {"input": "table:rows", "type": "rocksdb"},
        "table, memory": {"input": "table:rows", "type": "memory"},
        "unsorted file, rocksdb": {"input": f"files:{file}", "type": "rocksdb"},
    }
    tasks = {name: Task(_MODULE, "load", {**common, **each}) for name, each in loads.items()}
    tasks |= {type: Task(_MODULE, "look_up", {**common, "type": type}) for type in _TYPES}
    switched = min(rows, _SWITCHED_ROWS)
    tasks["switch"] = Task(_MODULE, "switch", {"home": home, "rows": switched})
    runs = run_by_turns(tasks, settings.repeats)
    figures = [
        *(
            figure(f"load, {name}", _rates(rows, runs[name]), "/s a core", Aim(4e5))
            for name in loads
        ),
        figure("load of a file, of a table", _of_table(rows, runs), "×"),
        *(each for type in _TYPES for each in _lookups(type, runs[type])),
        *_switches(runs["switch"]),
    ]
    work = (
        f"{rows:,} rows of a long key, a text of up to eight digits and a long, from a table of one"
        " file, and from a Parquet file in random order. Lookups are of random keys, all present,"
        f" from one thread, also while versions of {switched:,} rows replace each other."
    )
    notes = (
        "Rates are rows per second of processor time, of all threads.",
        "The pause is the longest lookup between the seal of a version and the deletion of the one"
        " before; the control has as many lookups with nothing beside them.",
    )
    return Result("adjunct", work, tuple(figures), (), notes)


def _rates(rows: int, runs: list[Measured]) -> list[float]:
    return [rows / each.cpu_seconds for each in runs]


def _of_table(rows: int, runs: dict[str, list[Measured]]) -> list[float]:
    return ratios(
        _rates(rows, runs["unsorted file, rocksdb"]), _rates(rows, runs["table, rocksdb"])
    )


def _lookups(type: str, runs: list[Measured]) -> list[Figure]:
    def values(name: str) -> list[float]:
        return [each.answer[name] for each in runs]

    return [
        figure(f"get, {type}, p50", values("get_p50_us"), "µs", Aim(5, is_most=True)),
        figure(f"get, {type}, p99", values("get_p99_us"), "µs", Aim(50, is_most=True)),
        figure(f"1,000 keys, {type}, p50", values("many_p50_ms"), "ms", Aim(2, is_most=True)),
    ]


def _switches(runs: list[Measured]) -> list[Figure]:
    pauses = [each.answer["pause_ms"] for each in runs]
    controls = [each.answer["control_ms"] for each in runs]
    return [
        figure("pause of a switch", pauses, "ms", Aim(1, is_most=True)),
        figure("longest lookup without a switch", controls, "ms"),
    ]
