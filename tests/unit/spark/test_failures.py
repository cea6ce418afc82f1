"""Errors of executors, as the driver translates them."""

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from sleeper.errors import DataError, InvalidRequestError, UnavailableError
from sleeper.spark.session import TaskError, mark_errors, raise_task_errors

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


def test_other_errors_pass_through() -> None:
    assert type(wrap_as_py4j(DataError("torn"))) is DataError
    assert type(wrap_as_py4j(ZeroDivisionError())) is ZeroDivisionError
