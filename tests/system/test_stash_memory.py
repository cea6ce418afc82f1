"""Rule 6 for stashes: the memory of a process that writes a leaf does not grow with its rows."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sleeper

pytestmark = pytest.mark.slow

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [{"name": "v", "type": "StringType"}],
}
FEW, MANY = 100_000, 800_000
GROWTH_MIB_MAX = 32

WRITE = """
import sys
from sleeper.opening import open_instance
from sleeper.stash.run import run_stash
instance, table, destination = sys.argv[1:]
result = run_stash(open_instance(instance), destination, [table], piece_bytes=2**40)
assert result.tables[0].files == 1
for line in open("/proc/self/status"):
    if line.startswith("VmHWM"):
        print(int(line.split()[1]) // 1024)
"""


def test_the_memory_to_write_a_leaf_does_not_grow_with_its_rows(tmp_path: Path) -> None:
    home = tmp_path / "instance"
    random = np.random.default_rng(1)
    with sleeper.create_instance(home, {"sleeper.engine.threads": "1"}) as instance:
        for rows in (FEW, MANY):
            letters = random.integers(97, 123, rows * 64, dtype=np.uint8).tobytes()
            ends = np.arange(0, rows * 64 + 1, 64, dtype=np.int32)
            buffers = [None, pa.py_buffer(ends), pa.py_buffer(letters)]
            values = pa.Array.from_buffers(pa.string(), rows, buffers)
            table = instance.create_table(f"rows-{rows}", SCHEMA)
            table.ingest(pa.table({"k": np.arange(rows), "v": values}))
    peaks = [peak_mib(home, f"rows-{rows}", tmp_path / f"stash-{rows}") for rows in (FEW, MANY)]
    print(f"resident at most: {peaks} MiB")
    assert peaks[1] - peaks[0] < GROWTH_MIB_MAX


def peak_mib(home: Path, table: str, destination: Path) -> int:
    """Returns the peak of the resident memory of a process that makes a stash of a table."""
    command = [sys.executable, "-c", WRITE, str(home), table, str(destination)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
