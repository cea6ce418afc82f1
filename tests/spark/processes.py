"""Processes that Spark starts, and how a test kills them."""

import contextlib
import os
import signal

import psutil


def family(pid: int) -> list[psutil.Process]:
    """The process and its descendants, as far as they live."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def kill_family(pid: int) -> None:
    """The Python of a driver, its JVM and the JVM's executors, Python daemons and workers."""
    for process in family(pid):
        # Whoever leads a group takes it along, and may be gone when its turn comes.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(os.getpgid(process.pid), signal.SIGKILL)


def executors(pid: int) -> list[psutil.Process]:
    """The JVMs of executors of the driver, where those are processes of their own."""
    return [p for p in family(pid) if "CoarseGrainedExecutorBackend" in command_of(p)]


def python_workers(pid: int) -> list[psutil.Process]:
    """What runs Python for the driver's tasks: children of Spark's Python daemons."""
    daemons = [p for p in family(pid) if "pyspark.daemon" in command_of(p)]
    ids = {daemon.pid for daemon in daemons}
    return [daemon for daemon in daemons if _parent_of(daemon) in ids]


def command_of(process: psutil.Process) -> str:
    """Its command line; empty if it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _parent_of(process: psutil.Process) -> int | None:
    try:
        return process.ppid()
    except psutil.Error:
        return None
