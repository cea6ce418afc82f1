"""Runs ministack with a clock that its tests move: `movable_clock.py FILE`.

The file holds by how many seconds the clock is ahead, as a double. Run by ministack's own
Python, which knows nothing of this project. FUNCTIONS_PYTHONPATH is where the functions that
it runs find libraries, and ministack itself does not.
"""

import mmap
import os
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
# Its children inherit it; this process has its path already.
if "FUNCTIONS_PYTHONPATH" in os.environ:
    os.environ["PYTHONPATH"] = os.environ["FUNCTIONS_PYTHONPATH"]
sys.argv = ["ministack"]
runpy.run_module("ministack", run_name="__main__")
