"""Prepares a Python process that a test starts.

Hides pandas, unless the process loads Spark: Arrow imports an installed pandas with its first
array, which takes as much CPU time as all other imports of `sleeper query`. Functions and
containers on AWS have no pandas either.

`SLEEPER_TEST_CLOCK` names a file with a double: the seconds by which the clock of the process is
ahead. A test changes the content while the process runs.
"""

import mmap
import os
import struct
import sys
import time
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _HiddenPandas(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> None:
        """Raises ModuleNotFoundError for pandas."""
        del path, target
        if fullname == "pandas" and "pyspark" not in sys.modules:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def _move_clock(path: str) -> None:
    with open(path, "rb") as file:
        ahead = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)
    real_time = time.time

    def moved_time() -> float:
        return real_time() + float(struct.unpack("d", ahead[:8])[0])

    time.time = moved_time
    time.time_ns = lambda: int(moved_time() * 1e9)


sys.meta_path.insert(0, _HiddenPandas())
if "SLEEPER_TEST_CLOCK" in os.environ:
    _move_clock(os.environ["SLEEPER_TEST_CLOCK"])
