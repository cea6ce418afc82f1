"""What the driver makes of errors that come back through Spark."""

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from sleeper.errors import DataError, InvalidRequestError, UnavailableError
from sleeper.spark.session import TaskError, mark_errors, raise_task_errors

CALLED = """An error occurred while calling o5.collectToPython.
: org.apache.spark.SparkException: Job 3 was cancelled
\tat org.apache.spark.Job"""


def as_driver_sees(error: Exception) -> Exception:
    """What a driver raises of what Spark raised."""
    with pytest.raises(Exception) as failure, raise_task_errors():  # noqa: PT011
        raise error
    return failure.value


def test_a_task_s_error_is_raised_on_the_driver() -> None:
    with pytest.raises(TaskError) as marked, mark_errors():
        raise InvalidRequestError('file a.csv, row 2: "x"\nis no number')
    output = f"Job aborted: Traceback\n  TaskError: {marked.value}\n\tat org.apache.spark\n"
    error = as_driver_sees(PySparkException(output))
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
    raised = as_driver_sees(error)
    assert type(raised) is UnavailableError
    with pytest.raises(UnavailableError, match=message):
        raise raised


def test_other_errors_pass_through() -> None:
    assert type(as_driver_sees(DataError("torn"))) is DataError
    assert type(as_driver_sees(ZeroDivisionError())) is ZeroDivisionError
