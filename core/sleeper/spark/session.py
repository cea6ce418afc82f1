"""Spark sessions of jobs, and errors of tasks on the driver.

Spark returns a task's error as text within its own message. So a task writes its error of
`sleeper.errors` as a marked line, which the driver parses.
"""

import json
import logging
import os
import re
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from sleeper import errors
from sleeper.errors import InvalidRequestError, SleeperError, UnavailableError
from sleeper.retries import JOB_RETRY_SECONDS, RETRY_VARIABLE
from sleeper.spark.first_task import check_access, run_first_task
from sleeper.spark.masters import check_master
from sleeper.spark.settings import SparkSettings
from sleeper.storage.location import DataRoot

logger = logging.getLogger(__name__)

_QUIET = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c: %m%n
"""
# What the master of a cluster reports to the driver, and the hosts of failed tasks.
_REPORTS = """logger.deploy.name = org.apache.spark.deploy
logger.deploy.level = info
logger.cluster.name = org.apache.spark.scheduler.cluster
logger.cluster.level = info
logger.scheduler.name = org.apache.spark.scheduler.TaskSchedulerImpl
logger.scheduler.level = warn
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = warn
"""
_LOG = "spark.log"
# Executors do not inherit the driver's environment, and open buckets before a task runs.
_RETRIES = {f"spark.executorEnv.{RETRY_VARIABLE}": str(JOB_RETRY_SECONDS)}
_LOG_SHOWN_BYTES = 500
_PYTHON_VARIABLE = "PYSPARK_PYTHON"
_PYTHON_SETTING = "spark.pyspark.python"
_LOGGING = "log4j2.properties"


def open_submitted_session(app_name: str) -> SparkSession:
    """Opens the session of spark-submit's settings. UnavailableError if it does not start."""
    _check_is_classic()
    _use_this_python({})
    try:
        builder = SparkSession.builder.appName(app_name)
        for name, value in _RETRIES.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    except PySparkException as error:
        raise UnavailableError(f"Spark did not start: {error}") from error


def _check_is_classic() -> None:
    """Raises InvalidRequestError for Spark Connect, whose sessions have no `sparkContext`."""
    if is_remote():
        raise InvalidRequestError(
            "jobs start a session of Spark in this process, and it uses Spark Connect (expected a "
            "process without SPARK_REMOTE and without remote sessions, and a master, such as "
            "spark://HOST:7077)"
        )


def stop_session(session: SparkSession) -> None:
    """Stops the session. Logs errors of one whose Java process has ended."""
    try:
        session.stop()
    except Exception as error:
        if not is_spark_error(error):
            raise
        logger.warning("Spark ended before it was stopped: %s", error)


@contextmanager
def start_session(
    app_name: str, settings: SparkSettings, folder: Path, roots: Sequence[DataRoot] = ()
) -> Iterator[SparkSession]:
    """Opens a session whose driver is this process, with the driver's files and log in the folder.

    A process has one session at a time: reuses a running session, and leaves it open.
    UnavailableError if it does not start: without Java, for one, or without an executor.
    InvalidRequestError if the executors of a cluster do not see one of the roots, or if this
    process uses Spark Connect.
    """
    _check_is_classic()
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    check_master(settings.master)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _LOGGING).write_text(_QUIET if settings.is_local else _QUIET + _REPORTS)
    _use_this_python(settings.conf)
    builder = SparkSession.builder.appName(app_name).master(settings.master)
    for name, value in session_conf(settings, folder).items():
        builder = builder.config(name, value)
    try:
        with _errors_into(folder / _LOG):
            session = builder.getOrCreate()
    except Exception as error:
        if not is_spark_error(error):
            raise
        log_tail = (folder / _LOG).read_text(errors="replace")[-_LOG_SHOWN_BYTES:].strip()
        needs = "Java 17" if settings.is_local else f"Java 17 and the master {settings.master}"
        raise UnavailableError(
            f"Spark did not start (it needs {needs}): {log_tail or error}"
        ) from error
    try:
        if not settings.is_local:
            with raise_task_errors(folder / _LOG):
                run_first_task(session, roots, settings.wait_seconds, folder / _LOG)
        yield session
    finally:
        stop_session(session)


def session_conf(settings: SparkSettings, folder: Path) -> dict[str, str]:
    """Returns all settings of a session with the driver's files in the folder."""
    logging_file = (folder / _LOGGING).as_uri()
    conf = _RETRIES | {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging_file}"
        f" -Dderby.system.home={folder}",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    if settings.is_local:
        # Executors of a cluster connect to the driver at the address that Spark chooses.
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return conf | dict(settings.conf)


def _use_this_python(settings: Mapping[str, str]) -> None:
    """Makes executors use this Python by default, instead of Spark's default `python3`."""
    if _PYTHON_SETTING in settings:
        os.environ[_PYTHON_VARIABLE] = settings[_PYTHON_SETTING]
    os.environ.setdefault(_PYTHON_VARIABLE, sys.executable)
    # Spark runs its workers by `python -m`, which would import from the current folder first.
    os.environ.setdefault("PYTHONSAFEPATH", "1")


@contextmanager
def _errors_into(log: Path) -> Iterator[None]:
    """Redirects standard error to the log for processes that start in this context."""
    sys.stderr.flush()
    kept = os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)


def run_this_python(session: SparkSession) -> None:
    """Makes later jobs of a user's session use this Python, unless its environment names one.

    Spark's default is the `python3` of the path, which lacks the package if the virtual environment
    of the driver was not activated.
    """
    if _PYTHON_VARIABLE in os.environ or is_remote():
        return
    context = session.sparkContext
    context.pythonExec = context.getConf().get(_PYTHON_SETTING) or sys.executable


_MARK = "sleeper task failed: "
# A line of the gateway before the error.
_GATEWAY_PREFIX = "An error occurred while calling "
_MARKED = re.compile(re.escape(_MARK) + r"(\{.*\})")
# The last line of a trace of Python, of an error before or outside `mark_errors`.
_TRACED = re.compile(r"^sleeper\.errors\.(\w+): (.+)$", re.MULTILINE)
_MISSING_MODULE = re.compile(r"^ModuleNotFoundError: (No module named .+)$", re.MULTILINE)
# Spark compares the minor versions of workers and driver before the worker loads anything.
_OTHER_PYTHON = re.compile(r"different version:? ([\d.]+) than that in driver:? ([\d.]+)")
_HOST = re.compile(r"\(TID \d+\) \((\S+) executor ")


class TaskError(Exception):
    """The marked error of a task."""


@contextmanager
def mark_errors(roots: Iterable[DataRoot] = ()) -> Iterator[None]:
    """Marks errors of a task, so that `raise_task_errors` can parse them.

    Before the task, checks that its process has credentials for the `roots`.
    """
    try:
        check_access(roots)
        yield
    except SleeperError as error:
        # Subclasses are of modules that the driver may not have loaded.
        kind = next(each for each in type(error).__mro__ if each.__module__ == errors.__name__)
        message = f"{error} on host {socket.gethostname()}" if _misses_file(error) else str(error)
        marked = json.dumps({"kind": kind.__name__, "message": message})
        raise TaskError(_MARK + marked) from error


def _misses_file(error: BaseException | None) -> bool:
    """Returns whether the cause is a missing file, such as one that only the driver sees."""
    while error is not None and not isinstance(error, FileNotFoundError):
        error = error.__cause__
    return error is not None


@contextmanager
def raise_task_errors(log: Path | None = None) -> Iterator[None]:
    """Raises, for an error of Spark, the task's error or UnavailableError.

    The log is the one of a session whose first job fails: errors of PySpark 4 have no host.
    """
    try:
        yield
    except SleeperError:
        raise
    except Exception as error:
        if not is_spark_error(error):
            raise
        raise _error_in(f"{error}{_failed_hosts(log)}") from error


def _failed_hosts(log: Path | None) -> str:
    """Returns what the log says of the host of the first failed task, as in Spark's errors."""
    host = _HOST.search(log.read_text(errors="replace")) if log is not None else None
    return f"\n{host[0]}" if host is not None else ""


def is_spark_error(error: Exception) -> bool:
    """Returns whether the error is of Spark, or of the gateway to its Java process."""
    # The gateway's error classes cannot always be imported.
    gateway = type(error).__module__.startswith("py4j")
    return gateway or isinstance(error, PySparkException | OSError)


def _error_in(text: str) -> SleeperError:
    match = _MARKED.search(text)
    if match is not None:
        raw = json.loads(match[1])
        return _make_error(raw["kind"], raw["message"])
    traced = _TRACED.search(text)
    if traced is not None:
        return _make_error(traced[1], traced[2])
    python_error = _python_error_in(text)
    if python_error is not None:
        return python_error
    lines = [line.lstrip(": ").rstrip() for line in text.splitlines()]
    causes = [line for line in lines if line and not line.startswith(_GATEWAY_PREFIX)]
    return UnavailableError(f"Spark failed: {causes[0] if causes else 'no reason reported'}")


def _python_error_in(text: str) -> SleeperError | None:
    """Returns the error of an executor whose Python is another one, or lacks a package."""
    host = _HOST.search(text)
    where = f" on host {host[1]}" if host else ""
    other = _OTHER_PYTHON.search(text)
    if other is not None:
        return UnavailableError(
            f"an executor{where} runs Python {other[1]}, and the driver Python {other[2]} "
            "(expected the same minor version: name another Python by PYSPARK_PYTHON or "
            "spark.pyspark.python)"
        )
    missing = _MISSING_MODULE.search(text)
    if missing is None:
        return None
    return UnavailableError(
        f"the Python of an executor{where} lacks a package: {missing[1]} (install sleeper "
        "there, or name another Python by PYSPARK_PYTHON or spark.pyspark.python)"
    )


def _make_error(kind: str, message: str) -> SleeperError:
    error: SleeperError = getattr(errors, kind)(message)
    return error
