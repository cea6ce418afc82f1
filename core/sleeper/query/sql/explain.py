"""The amounts that a statement reads: leaves, files, bytes and pages of each table."""

import re
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from datafusion import ExecutionPlan

from sleeper.datafiles.engine.errors import engine_errors
from sleeper.properties.instance import QUERY_MEMORY_BYTES
from sleeper.query.engine import QueryEngine
from sleeper.query.sql.parameters import Parameters
from sleeper.query.sql.statement import StatementRun, TableOpeners
from sleeper.query.sql.stream import read_stream
from sleeper.query.sql.tables import NEWEST, AsOf
from sleeper.query.sql.text import statement_errors

_PAGES = re.compile(r"page_index_pages_pruned\{[^}]*\}=([\d.]+ ?[KMG]?) total → ([\d.]+ ?[KMG]?)")
_BYTES = "bytes_scanned"
_FILE_NAME = re.compile(r"[^/]+\.parquet\b")
_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3}


@dataclass(frozen=True, slots=True)
class TableReads:
    """The amounts that a statement read of one table.

    Each `..._of` is the total in the table. `bytes` is the size of the opened files and
    `bytes_read` the part that was fetched. `pages` is the number of pages that remained of the
    `pages_of` pages that a predicate was evaluated against, or None without such a predicate.
    """

    table: str
    version: int
    leaves: int
    leaves_of: int
    files: int
    files_of: int
    bytes: int
    bytes_of: int
    bytes_read: int
    pages: int | None
    pages_of: int | None


@dataclass(frozen=True, slots=True)
class SqlExplanation:
    """The amounts that a statement read, by table, with its number of rows and its duration."""

    reads: tuple[TableReads, ...]
    rows: int
    seconds: float


def explain_sql(
    statement: str,
    tables: TableOpeners,
    engine: QueryEngine,
    as_of: AsOf = NEWEST,
    parameters: Parameters | None = None,
) -> SqlExplanation:
    """Runs a statement, discards its rows, and returns the amounts. Raises as `run_sql` does."""
    settings = engine.settings
    # A single thread, so that one plan has all metrics.
    single = QueryEngine(
        replace(settings, engine=replace(settings.engine, threads=1)), engine.clock
    )
    run = StatementRun(statement, single, as_of=as_of, parameters=parameters)
    start_seconds = time.monotonic()
    try:
        frame = run.frame(tables, narrow=True)
        with statement_errors(), engine_errors(QUERY_MEMORY_BYTES.name):
            plan = frame.execution_plan()
            rows = sum(
                batch.num_rows
                for partition in range(plan.partition_count)
                for batch in read_stream(run.session.execute(plan, partition), run.limit)
            )
            scanned = _read_metrics(plan, run)
        reads = tuple(_reads(run, name, scanned[name]) for name in run.plans)
    finally:
        run.release()
    return SqlExplanation(reads, rows, time.monotonic() - start_seconds)


@dataclass(slots=True)
class _ScanMetrics:
    """The metrics of the scans of a table."""

    bytes: int = 0
    pages: int = 0
    pages_of: int = 0


def _read_metrics(plan: ExecutionPlan, run: StatementRun) -> dict[str, _ScanMetrics]:
    table_of_file = {
        PurePosixPath(path).name: table
        for table, table_plan in run.plans.items()
        for group in table_plan.groups
        for path in group.paths
    }
    table_of_file |= {file.name: table for file, table in run.local_files.items()}
    metrics_by_table: dict[str, _ScanMetrics] = defaultdict(_ScanMetrics)
    for text, node in _nodes(plan):
        # A scan shows some of its files, whose names are unique.
        shown = _FILE_NAME.search(text)
        table = table_of_file.get(shown[0]) if shown else None
        metrics = node.metrics()
        if table is None or metrics is None:
            continue
        each = metrics_by_table[table]
        each.bytes += sum(
            m.value for m in metrics.metrics() if m.name == _BYTES and isinstance(m.value, int)
        )
        for total, matched in _PAGES.findall(repr(metrics)):
            each.pages_of += _number(total)
            each.pages += _number(matched)
    return metrics_by_table


def _nodes(plan: ExecutionPlan) -> Iterator[tuple[str, ExecutionPlan]]:
    children = plan.children()
    if not children:
        yield plan.display(), plan
    for child in children:
        yield from _nodes(child)


def _number(text: str) -> int:
    digits = text.rstrip("KMG ")
    return round(float(digits) * _UNITS[text[len(digits) :].strip()])


def _reads(run: StatementRun, name: str, scanned: _ScanMetrics) -> TableReads:
    plan, table = run.plans[name], run.tables[name]
    regions = run.needs[name].regions
    with table.store.reading(plan.version) as state:
        extent = state.files.extent()
        overlapping = [] if regions is None else state.partitions.leaves_overlapping(regions)
    return TableReads(
        table=name,
        version=plan.version,
        leaves=extent.leaves if regions is None else len(overlapping),
        leaves_of=extent.leaves,
        files=len(plan.paths),
        files_of=extent.files,
        bytes=plan.bytes,
        bytes_of=extent.bytes,
        bytes_read=scanned.bytes,
        pages=scanned.pages if scanned.pages_of else None,
        pages_of=scanned.pages_of or None,
    )
