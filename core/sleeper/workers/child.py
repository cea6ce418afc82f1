"""What every worker process of a local instance does at its start.

The parent process holds the write end of its standard input. When the parent closes it or dies,
the process stops after its current work. Workers are fresh processes, never forks.
"""

import argparse
import os
import signal
import sys
import threading

from sleeper.log_lines import log_lines
from sleeper.retries import retry_as_job
from sleeper.storage.descriptors import raise_descriptor_limit


def start_child(description: str) -> tuple[str, threading.Event]:
    """Returns the folder of the arguments, and an event that is set when the process must stop."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder")
    arguments = parser.parse_args()
    retry_as_job()
    log_lines("%(levelname)s %(name)s: %(message)s")
    raise_descriptor_limit()
    stop = threading.Event()
    threading.Thread(target=_stop_when_input_closes, args=(stop,), daemon=True).start()
    # Ctrl-C reaches the whole process group, and the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return arguments.folder, stop


def _stop_when_input_closes(stop: threading.Event) -> None:
    # Not through the buffer, whose lock this thread would hold at the end of a process that SIGTERM
    # ends before its input is closed: Python aborts then.
    while os.read(sys.stdin.fileno(), 1):
        pass
    stop.set()
