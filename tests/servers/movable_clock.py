"""Runs ministack with a clock that its tests move: `movable_clock.py FILE`.

The file holds by how many seconds the clock is ahead, as a double. Run by ministack's own
Python, which knows nothing of this project.
"""

import mmap
import runpy
import struct
import sys
import time

_real_time = time.time
with open(sys.argv[1], "rb") as file:
    _ahead = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)


def _moved_time() -> float:
    return _real_time() + struct.unpack("d", _ahead[:8])[0]


time.time = _moved_time
sys.argv = ["ministack"]
runpy.run_module("ministack", run_name="__main__")
