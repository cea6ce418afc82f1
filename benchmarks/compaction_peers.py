"""Compaction beside peers: eleven sorted files become one sorted Parquet file."""

from pathlib import Path

import pyarrow.parquet as pq

from benchmarks import compaction
from benchmarks.beside import PEERS_DIFFER, merges_beside, peer_merge
from benchmarks.measuring import Task, run_by_turns
from benchmarks.peers.environment import CHDB, DUCKDB, installed
from benchmarks.result import OURS, Result
from benchmarks.rows import check_rows
from benchmarks.settings import Settings

ROWS = 11_000_000


def measure(settings: Settings) -> Result:
    rows_each = (settings.rows or ROWS) // compaction.FILES
    place = compaction.sorted_inputs(settings.folder, rows_each)
    inputs = [Path(place["root"], path) for path in place["paths"]]
    rows = sum(pq.ParquetFile(item).metadata.num_rows for item in inputs)
    tasks = {OURS: Task(compaction.__name__, "ours", place)}
    for name, use_sleeper_settings in (("DataFusion", True), ("DataFusion, its settings", False)):
        arguments = {**place, "use_sleeper_settings": use_sleeper_settings}
        tasks[name] = Task(compaction.__name__, "raw", arguments)
    peers = installed(settings.folder, (DUCKDB, CHDB))
    for peer in peers:
        tasks[peer.label] = peer_merge(
            peer,
            "compact",
            [str(item) for item in inputs],
            settings.folder,
            lambda output: check_rows([output], inputs, rows),
        )
    runs = run_by_turns(tasks, max(1, settings.repeats - 1))
    figures, comparisons = merges_beside(rows, runs, peers)
    work = f"{compaction.FILES} sorted files of {rows_each:,} rows → 1 sorted Parquet file."
    notes = (*PEERS_DIFFER, "Only DataFusion declares its inputs as sorted, and merges them.")
    return Result("compaction-peers", work, tuple(figures), tuple(comparisons), notes)
