"""Stashes: the writing and reading of documents, their memory, and ingests beside them."""

from pathlib import Path

from benchmarks.measuring import Measured, Task, peaks_mib, run, run_by_turns
from benchmarks.peers.environment import DUCKDB, installed
from benchmarks.result import OURS, Aim, Comparison, Figure, Result, comparison, figure, ratios
from benchmarks.settings import Settings
from benchmarks.stash_tasks import data_folder, make_table

ROWS = 1_000_000
_GROWTH = 4
_LEAVES = 1_000
_ROWS_PER_LEAF = 50
_MODULE = "benchmarks.stash_tasks"
_COPY = "DataFusion, the rows alone"
_WHOLE_COPY = "DataFusion, the same documents"
_READ = "DataFusion"


def measure(settings: Settings) -> Result:
    rows = settings.rows or ROWS
    homes = {count: str(make_table(settings.folder, count)) for count in (rows, _GROWTH * rows)}
    out = str(settings.folder / "stash-out")
    figures: list[Figure] = []
    comparisons: list[Comparison] = []
    for more, beside in (
        _measure_writes(settings, rows, homes[rows], out),
        _measure_reads(settings, rows, homes[rows], out),
    ):
        figures += more
        comparisons += beside
    figures += _measure_memory(settings, homes, out)
    figures += _measure_leaves(settings, out)
    busy = run(Task(_MODULE, "ingest_beside", {"home": homes[rows], "out": out})).answer
    most = Aim(1.2, is_most=True)
    for what in ("p50", "p99"):
        figures.append(figure(f"ingest, {what}", busy[f"{what}_ms"], "ms"))
        figures.append(figure(f"ingest during a stash, {what}, of without", busy[what], "×", most))
    work = (
        f"{rows:,} rows in one leaf, of a key of ten letters, a long, a text, a double and a"
        " timestamp, written as documents, and read back. A core's rate is that of a second of"
        " processor time. Each stash is checked against the table."
    )
    notes = (
        f"{_COPY}: `COPY ... TO` of the same data files to JSON lines, gzipped. {_WHOLE_COPY}: with"
        " the seven fields that a stash adds, which more than double a line. DuckDB: `COPY ... TO`"
        " of the rows alone, and `read_json` of the stash. All have one thread; DataFusion"
        " compresses in another.",
        "Ingests are of 100 rows, beside a process that makes one stash after another with one"
        " thread, and by turns without it.",
    )
    return Result("stash", work, tuple(figures), tuple(comparisons), notes)


def _measure_writes(
    settings: Settings, rows: int, home: str, out: str
) -> tuple[list[Figure], list[Comparison]]:
    arguments = {"home": home, "rows": rows}
    files = {"data": data_folder(Path(home)), "out": out}
    tasks = {
        OURS: Task(_MODULE, "write", {**arguments, "out": out}),
        _COPY: Task(_MODULE, "copy", {**files, "rows": rows, "as_documents": False}),
        _WHOLE_COPY: Task(_MODULE, "copy", {**files, "rows": rows, "as_documents": True}),
        "scan": Task(_MODULE, "scan", arguments),
    }
    for peer in installed(settings.folder, (DUCKDB,)):
        tasks[peer.label] = peer.task("copy", files)
    runs = run_by_turns(tasks, settings.repeats)
    scans = runs.pop("scan")
    speed = {who: _core_rates(rows, results) for who, results in runs.items()}
    figures = [
        figure("written by a core", speed[OURS], "M rows/s"),
        figure("written by a core, documents", _core_mib(runs[OURS]), "MiB/s"),
        figure("write, of DataFusion's of the rows", _ratio(speed, _COPY), "×", Aim(0.6)),
        figure("write, of DataFusion's of the documents", _ratio(speed, _WHOLE_COPY), "×"),
        figure("write, of a scan", ratios(speed[OURS], _core_rates(rows, scans)), "×"),
    ]
    seconds = {who: [r.cpu_seconds for r in results] for who, results in runs.items()}
    return figures, [comparison("write, processor time", seconds, "s")]


def _measure_reads(
    settings: Settings, rows: int, home: str, out: str
) -> tuple[list[Figure], list[Comparison]]:
    run(Task(_MODULE, "write", {"home": home, "out": out, "rows": rows, "keeps": True}))
    arguments = {"out": out, "rows": rows}
    batches, python = f"{OURS}, batches", "Python's gzip and json"
    documents, lines = f"{OURS}, documents", f"{OURS}, lines"
    tasks = {
        batches: Task(_MODULE, "read", {**arguments, "kind": "batches"}),
        documents: Task(_MODULE, "read", {**arguments, "kind": "documents"}),
        lines: Task(_MODULE, "read", {**arguments, "kind": "lines"}),
        _READ: Task(_MODULE, "read_raw", arguments),
        python: Task(_MODULE, "read_by_python", arguments),
    }
    for peer in installed(settings.folder, (DUCKDB,)):
        tasks[peer.label] = peer.task("read_json", arguments)
    runs = run_by_turns(tasks, settings.repeats)
    speed = {who: _core_rates(rows, results) for who, results in runs.items()}
    figures = [
        figure("read by a core, batches", speed[batches], "M rows/s"),
        figure("read by a core, documents", speed[documents], "M rows/s"),
        figure("read by a core, lines", speed[lines], "M rows/s"),
        figure("batches, of DataFusion's", ratios(speed[batches], speed[_READ]), "×", Aim(0.7)),
        figure(
            "documents, of Python's gzip and json", ratios(speed[documents], speed[python]), "×"
        ),
        figure("batches, peak", peaks_mib(runs[batches]), "MiB"),
    ]
    seconds = {who: [r.cpu_seconds for r in results] for who, results in runs.items()}
    return figures, [comparison("read, processor time", seconds, "s")]


def _measure_memory(settings: Settings, homes: dict[int, str], out: str) -> list[Figure]:
    tasks = {
        str(rows): Task(_MODULE, "write", {"home": home, "out": out, "rows": rows})
        for rows, home in homes.items()
    }
    peaks = [peaks_mib(runs) for runs in run_by_turns(tasks, settings.repeats).values()]
    few, many = homes
    return [
        figure(f"write of a leaf of {few:,} rows, peak", peaks[0], "MiB"),
        figure(f"write of a leaf of {many:,} rows, peak", peaks[1], "MiB"),
        figure(
            f"peak at {_GROWTH} × the rows", ratios(peaks[1], peaks[0]), "×", Aim(1.2, is_most=True)
        ),
    ]


def _measure_leaves(settings: Settings, out: str) -> list[Figure]:
    rows = _LEAVES * _ROWS_PER_LEAF
    home = str(make_table(settings.folder, rows, _LEAVES))
    task = Task(_MODULE, "write", {"home": home, "out": out, "rows": rows})
    runs = run_by_turns({f"{_LEAVES} leaves": task}, settings.repeats)
    (seconds,) = ([r.seconds for r in results] for results in runs.values())
    return [figure(f"write of {_LEAVES:,} leaves of {_ROWS_PER_LEAF} rows", seconds, "s")]


def _ratio(speed: dict[str, list[float]], anchor: str) -> list[float]:
    return ratios(speed[OURS], speed[anchor])


def _core_rates(rows: int, runs: list[Measured]) -> list[float]:
    """Millions of rows in a second of processor time, of each run."""
    return [rows / r.cpu_seconds / 1e6 for r in runs]


def _core_mib(runs: list[Measured]) -> list[float]:
    return [r.answer["bytes"] / r.cpu_seconds / 2**20 for r in runs]
