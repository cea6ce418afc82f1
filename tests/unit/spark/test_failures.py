"""Errors of executors, as the driver translates them."""

import re
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from sleeper.errors import DataError, InvalidRequestError, UnavailableError
from sleeper.spark import first_task
from sleeper.spark.cluster import check_files
from sleeper.spark.session import TaskError, mark_errors, raise_task_errors
from sleeper.storage.bucket import Bucket, MissingBucketError
from sleeper.storage.location import DataRoot

CALLED = """An error occurred while calling o5.collectToPython.
: org.apache.spark.SparkException: Job 3 was cancelled
\tat org.apache.spark.Job"""


def wrap_as_py4j(error: Exception) -> Exception:
    """Wraps an error as the driver receives it from Spark."""
    with pytest.raises(Exception) as failure, raise_task_errors():  # noqa: PT011
        raise error
    return failure.value


def test_a_task_s_error_is_raised_on_the_driver() -> None:
    with pytest.raises(TaskError) as error_info, mark_errors():
        raise InvalidRequestError('file a.csv, row 2: "x"\nis no number')
    output = f"Job aborted: Traceback\n  TaskError: {error_info.value}\n\tat org.apache.spark\n"
    error = wrap_as_py4j(PySparkException(output))
    assert type(error) is InvalidRequestError
    assert str(error) == 'file a.csv, row 2: "x"\nis no number'


def test_each_process_checks_its_credentials_once(monkeypatch: pytest.MonkeyPatch) -> None:
    buckets: list[str] = []

    def check(bucket: Bucket) -> None:
        buckets.append(bucket.name)
        if bucket.name == "none":
            raise UnavailableError("no credentials of AWS for bucket none on host a")

    monkeypatch.setattr("sleeper.spark.first_task.check_credentials", check)
    first_task._check_once.cache_clear()
    root, none = (DataRoot(Bucket(name, region="eu-west-2")) for name in ("b", "none"))
    for _ in range(2):
        with mark_errors((root,)):
            pass
    message = "no credentials of AWS for bucket none on host a"
    with pytest.raises(TaskError, match=message), mark_errors((root, none)):
        raise AssertionError
    assert buckets == ["b", "none"]
    first_task._check_once.cache_clear()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PySparkException("\n\n  Job 3 cancelled \nat x"), "Spark failed: Job 3 cancelled"),
        (PySparkException(CALLED), "Spark failed: org.apache.spark.SparkException: Job 3 was"),
        (PySparkException(""), "Spark failed: no reason reported"),
        (Py4JNetworkError("Answer from Java side is empty"), "Spark failed: Answer from Java"),
        (ConnectionRefusedError(111, "Connection refused"), r"Spark failed: \[Errno 111\]"),
    ],
)
def test_errors_of_spark_and_its_gateway_are_unavailable(error: Exception, message: str) -> None:
    error_in_driver = wrap_as_py4j(error)
    assert type(error_in_driver) is UnavailableError
    with pytest.raises(UnavailableError, match=message):
        raise error_in_driver


TRACE = """Job aborted due to stage failure: Lost task 0.0 (TID 7) (10.0.0.2 executor 1): Traceback
  File "worker.py", line 1, in main
{}
"""


def test_an_error_before_the_task_s_own_code_is_read_from_its_trace() -> None:
    line = "sleeper.errors.InvalidRequestError: folder /data does not exist on host b"
    error = wrap_as_py4j(PySparkException(TRACE.format(line)))
    assert type(error) is InvalidRequestError
    assert str(error) == "folder /data does not exist on host b"


def test_an_executor_without_the_package_is_named() -> None:
    line = "ModuleNotFoundError: No module named 'sleeper'"
    error = wrap_as_py4j(PySparkException(TRACE.format(line)))
    assert type(error) is UnavailableError
    assert str(error).startswith(
        "the Python of an executor on host 10.0.0.2 lacks a package: No module named 'sleeper' ("
    )


def test_a_host_that_only_the_log_of_spark_has_is_named(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text("09:00:00 WARN TaskSetManager: Lost task 0.0 (TID 7) (10.0.0.2 executor 1): x\n")
    error = PySparkException("Traceback\nModuleNotFoundError: No module named 'sleeper'")
    message = r"on host 10\.0\.0\.2 lacks"
    with pytest.raises(UnavailableError, match=message), raise_task_errors(log):
        raise error


# Of PySpark 3.5, and of newer ones.
@pytest.mark.parametrize("colon", ["", ":"])
def test_an_executor_with_another_python_is_named_with_both_versions(colon: str) -> None:
    line = (
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in "
        f"worker has different version{colon} 3.12 than that in driver{colon} 3.11, PySpark cannot"
    )
    error = wrap_as_py4j(PySparkException(TRACE.format(line)))
    assert type(error) is UnavailableError
    assert str(error).startswith(
        "an executor on host 10.0.0.2 runs Python 3.12, and the driver Python 3.11 ("
    )


def test_a_file_that_an_executor_does_not_see_is_reported_with_the_host() -> None:
    missing = InvalidRequestError("cannot read a.csv")
    missing.__cause__ = FileNotFoundError("a.csv")
    with pytest.raises(TaskError, match=r"cannot read a\.csv on host") as error_info, mark_errors():
        raise missing
    assert socket.gethostname() in str(error_info.value)


def test_an_error_of_a_subclass_is_raised_as_its_kind() -> None:
    with pytest.raises(TaskError) as error_info, mark_errors():
        raise MissingBucketError("no bucket b")
    error = wrap_as_py4j(PySparkException(str(error_info.value)))
    assert type(error) is MissingBucketError.__base__


def test_other_errors_pass_through() -> None:
    assert type(wrap_as_py4j(DataError("torn"))) is DataError
    assert type(wrap_as_py4j(ZeroDivisionError())) is ZeroDivisionError


def test_files_that_the_driver_does_not_see_are_not_committed(tmp_path: Path) -> None:
    root = DataRoot(tmp_path)
    (tmp_path / "a").touch()
    here, elsewhere = (cast(Any, SimpleNamespace(file=SimpleNamespace(path=p))) for p in "ab")
    check_files(root, [here])
    reason = f"an executor wrote b, which does not exist in {tmp_path} on host "
    with pytest.raises(UnavailableError, match=re.escape(reason)):
        check_files(root, [here, elsewhere])
