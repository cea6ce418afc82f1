"""Spark sessions of jobs."""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sleeper.errors import UnavailableError
from sleeper.retries import JOB_RETRY_SECONDS, RETRY_VARIABLE
from sleeper.spark.failures import is_spark_error

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
