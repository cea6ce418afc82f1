"""Merges of sorted files into one, by us and beside peers."""

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from benchmarks.measuring import Measured, Task, peaks_mib, rates
from benchmarks.peers.environment import Installed
from benchmarks.result import OURS, Aim, Comparison, Figure, comparison, figure, of_the_best
from sleeper.properties.instance import MERGE_MEMORY_BYTES

MEMORY_BYTES = MERGE_MEMORY_BYTES.default or 0
THREADS = 2
PEERS_DIFFER = (
    "The peers sort sorted input again, because they cannot declare its order. They write neither"
    " sketches nor key filters, commit nothing, and do not synchronize the disk. Sleeper does.",
    f"Each has {MEMORY_BYTES >> 20:,} MiB by its own settings and {THREADS} threads, and writes"
    " zstd at level 1, with its own sizes of row groups and pages.",
)


def peer_merge(
    peer: Installed,
    function: str,
    inputs: Sequence[str],
    folder: Path,
    check: Callable[[Path], None],
) -> Task:
    """The peer's task of writing the inputs as one file, which is checked and thrown away."""
    place = folder / f"{function}-{peer.peer.module}"
    output = place / "out.parquet"
    arguments = {
        "inputs": list(inputs),
        "output": str(output),
        "spill": str(place / "spill"),
        "memory_bytes": MEMORY_BYTES,
        "threads": THREADS,
    }

    def check_and_clear(_: Measured) -> None:
        check(output)
        _empty(place)

    _empty(place)
    return peer.task(function, arguments, check=check_and_clear)


def merges_beside(
    rows: int, runs: Mapping[str, list[Measured]], peers: Collection[Installed]
) -> tuple[list[Figure], list[Comparison]]:
    """Speed and memory of all; ours against the best of those peers that write sorted files."""
    speed = {who: rates(rows, results) for who, results in runs.items()}
    peaks = {who: peaks_mib(results) for who, results in runs.items()}
    comparisons = [
        comparison("speed", speed, "M rows/s", less_is_better=False),
        comparison("processor time", _cpu_seconds(runs), "s"),
        comparison("peak", peaks, "MiB"),
    ]
    writers = [peer.label for peer in peers if peer.label in runs]
    if not writers:
        return [], comparisons
    best = of_the_best(speed, OURS, writers, less_is_better=False)
    return [figure("ours, of the best peer", best, "×", Aim(1))], comparisons


def _cpu_seconds(runs: Mapping[str, list[Measured]]) -> dict[str, list[float]]:
    return {who: [run.cpu_seconds for run in results] for who, results in runs.items()}


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "spill").mkdir(parents=True)
