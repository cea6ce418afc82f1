"""The memory of capturing the exports of one ingest does not grow with its rows."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sleeper
from tests.tables.opened import KEY_AND_VALUE
from tests.unit.export_queue.receiver import create_queue, define_queue

pytestmark = pytest.mark.slow

FEW, MANY = 800_000, 2_000_000
GROWTH_MIB_MAX = 96
PEAK_MIB_MAX = 600

CAPTURE = """
import sys
from sleeper.export_queue.capture import capture_exports
from sleeper.opening import open_instance
instance, queue, exports = sys.argv[1:]
report = capture_exports(open_instance(instance), queue)
assert (report.exports, report.is_complete) == (int(exports), True), report
for line in open("/proc/self/status"):
    if line.startswith("VmHWM"):
        print(int(line.split()[1]) // 1024)
"""


def test_the_memory_to_capture_an_ingest_does_not_grow_with_its_rows(tmp_path: Path) -> None:
    home = tmp_path / "instance"
    with sleeper.create_instance(home) as instance:
        for rows in (FEW, MANY):
            table = instance.create_table(f"rows-{rows}", KEY_AND_VALUE)
            queue = define_queue(table, "key", "value", name=f"queue-{rows}")
            create_queue(instance._ports, table.name, queue)
            values = pa.array(np.arange(rows) * 7).cast(pa.string())
            table.ingest(pa.table({"key": np.arange(rows), "value": values}))
    peaks = [peak_mib(home, rows) for rows in (FEW, MANY)]
    print(f"resident at most: {peaks} MiB")
    assert peaks[1] - peaks[0] < GROWTH_MIB_MAX
    assert max(peaks) < PEAK_MIB_MAX


def peak_mib(home: Path, rows: int) -> int:
    """Returns the peak of the resident memory of a process that captures an ingest of the rows."""
    command = [sys.executable, "-c", CAPTURE, str(home), f"queue-{rows}", str(rows)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
