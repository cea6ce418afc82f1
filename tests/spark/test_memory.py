"""The peak memory of a Python worker does not depend on the amount of work."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sleeper.admin.tables import create_table
from sleeper.opening import create_instance, open_instance
from sleeper.properties.instance import BULK_IMPORT_TASK_MEMORY_BYTES
from sleeper.properties.table import BULK_IMPORT_LEAVES_MIN
from tests.spark.imports import PATIENCE_SECONDS, SCHEMA, Import
from tests.spark.processes import MIB, PeakMemory, python_workers

pytestmark = pytest.mark.timeout(6 * PATIENCE_SECONDS)

TASK_MEMORY_BYTES = 64 * MIB
# Python with its libraries and what their allocators keep, and two times a task's memory.
BOUND_BYTES = 512 * MIB + 2 * TASK_MEMORY_BYTES
FACTOR_MAX = 1.25
ROWS_PER_FILE = 125_000


def write(folder: Path, rows: int) -> Path:
    """Rows of some 40 bytes in no order, of one leaf."""
    folder.mkdir()
    for first in range(0, rows, ROWS_PER_FILE):
        s = pa.array(range(first, first + ROWS_PER_FILE))
        keys = pc.bit_wise_and(pc.multiply(s, 2_654_435_761), 2**31 - 1).cast(pa.string())
        columns = {"k": pc.utf8_lpad(keys, 10, "0"), "s": s, "v": pc.utf8_lpad(keys, 16, "v")}
        pq.write_table(pa.table(columns), folder / f"{first}.parquet", row_group_size=100_000)
    return folder


def measure_peak(folder: Path, rows: int) -> int:
    """The peak of the greediest of an import's workers."""
    create_instance(
        folder / "i", "test", {BULK_IMPORT_TASK_MEMORY_BYTES.name: str(TASK_MEMORY_BYTES)}
    )
    instance = open_instance(folder / "i")
    create_table(instance, "t", SCHEMA, {BULK_IMPORT_LEAVES_MIN.name: "1"})
    life = Import(instance, write(folder / "in", rows), "local[2]")
    with PeakMemory(lambda: python_workers(life.pid)) as peak:
        output = life.end()
    assert f"{rows:,} rows" in output
    instance.close()
    return peak.bytes


def measure_peaks(folder: Path) -> tuple[int, int]:
    """The peaks of imports of few rows and of many."""
    peaks = []
    for rows in (250_000, 1_000_000):
        part = folder / str(rows)
        part.mkdir(parents=True)
        peaks.append(measure_peak(part, rows))
    return peaks[0], peaks[1]


def test_the_memory_of_an_import_worker_does_not_grow_with_the_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few, many = measure_peaks(tmp_path / "first")
    if many >= FACTOR_MAX * few:
        # On a busy machine allocators may keep more. What grows with the rows does so again.
        again = measure_peaks(tmp_path / "second")
        few, many = min(few, again[0]), min(many, again[1])
    with capsys.disabled():
        print(f"\n250,000 rows: {few // MIB} MiB, 1,000,000 rows: {many // MIB} MiB")
    assert few > 64 * MIB
    assert many < BOUND_BYTES
    assert many < FACTOR_MAX * few
