"""Spark sessions of jobs, and errors of tasks on the driver.

Spark returns a task's error as text within its own message. So a task writes its error of
`sleeper.errors` as a marked line, which the driver parses.
"""

import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sleeper import errors
from sleeper.errors import SleeperError, UnavailableError
from sleeper.retries import JOB_RETRY_SECONDS, RETRY_VARIABLE

logger = logging.getLogger(__name__)

_QUIET = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c: %m%n
"""
_LOG = "spark.log"
# Executors do not inherit the driver's environment, and open buckets before a task runs.
_RETRIES = {f"spark.executorEnv.{RETRY_VARIABLE}": str(JOB_RETRY_SECONDS)}
_LOG_SHOWN_BYTES = 500
LOCAL_MASTER = "local[*,2]"
"""All processors of this machine. A task is tried twice, because connections may break."""


def open_submitted_session(app_name: str) -> SparkSession:
    """Opens the session of spark-submit's settings. UnavailableError if it does not start."""
    _use_this_python()
    try:
        builder = SparkSession.builder.appName(app_name)
        for name, value in _RETRIES.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    except PySparkException as error:
        raise UnavailableError(f"Spark did not start: {error}") from error


def stop_session(session: SparkSession) -> None:
    """Stops the session. Logs errors of one whose Java process has ended."""
    try:
        session.stop()
    except Exception as error:
        if not is_spark_error(error):
            raise
        logger.warning("Spark ended before it was stopped: %s", error)


@contextmanager
def local_session(
    app_name: str, master: str, folder: Path, settings: Mapping[str, str]
) -> Iterator[SparkSession]:
    """Opens a session on this machine, with its files and log in the folder.

    A process has one session at a time: reuses a running session, and leaves it open.
    UnavailableError if it does not start: without Java, for one.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    folder.mkdir(parents=True, exist_ok=True)
    logging_file = folder / "log4j2.properties"
    logging_file.write_text(_QUIET)
    _use_this_python()
    chosen = _RETRIES | {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging_file.as_uri()}"
        f" -Dderby.system.home={folder}",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in {**chosen, **settings}.items():
        builder = builder.config(name, value)
    try:
        with _errors_into(folder / _LOG):
            session = builder.getOrCreate()
    except Exception as error:
        if not is_spark_error(error):
            raise
        log_tail = (folder / _LOG).read_text(errors="replace")[-_LOG_SHOWN_BYTES:].strip()
        raise UnavailableError(
            f"Spark did not start (it needs Java 17): {log_tail or error}"
        ) from error
    try:
        yield session
    finally:
        stop_session(session)


def _use_this_python() -> None:
    """Makes executors use this Python by default, instead of Spark's default `python3`."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
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


_MARK = "sleeper task failed: "
# A line of the gateway before the error.
_GATEWAY_PREFIX = "An error occurred while calling "
_MARKED = re.compile(re.escape(_MARK) + r"(\{.*\})")


class TaskError(Exception):
    """The marked error of a task."""


@contextmanager
def mark_errors() -> Iterator[None]:
    """Marks errors of a task, so that `raise_task_errors` can parse them."""
    try:
        yield
    except SleeperError as error:
        marked = json.dumps({"kind": type(error).__name__, "message": str(error)})
        raise TaskError(_MARK + marked) from error


@contextmanager
def raise_task_errors() -> Iterator[None]:
    """Raises, for an error of Spark, the task's error or UnavailableError."""
    try:
        yield
    except SleeperError:
        raise
    except Exception as error:
        if not is_spark_error(error):
            raise
        raise _error_in(str(error)) from error


def is_spark_error(error: Exception) -> bool:
    """Returns whether the error is of Spark, or of the gateway to its Java process."""
    # The gateway's error classes cannot always be imported.
    gateway = type(error).__module__.startswith("py4j")
    return gateway or isinstance(error, PySparkException | OSError)


def _error_in(text: str) -> SleeperError:
    match = _MARKED.search(text)
    if match is None:
        lines = [line.lstrip(": ").rstrip() for line in text.splitlines()]
        causes = [line for line in lines if line and not line.startswith(_GATEWAY_PREFIX)]
        return UnavailableError(f"Spark failed: {causes[0] if causes else 'no reason reported'}")
    raw = json.loads(match[1])
    kind = getattr(errors, raw["kind"])
    error: SleeperError = kind(raw["message"])
    return error
