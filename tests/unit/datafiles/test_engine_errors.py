"""Errors of Python functions that the engine calls keep their type."""

import pyarrow as pa
import pytest
from datafusion import SessionContext, col, udf

from sleeper.datafiles.engine.errors import engine_errors
from sleeper.errors import DataError, SleeperError, StateMovedOnError, UnavailableError


@pytest.mark.parametrize(
    "error",
    [
        StateMovedOnError("a data file is missing: /data/deletes/1.parquet"),
        UnavailableError("the disk's \"full\": \\ and it's 'read-only'"),
    ],
)
def test_an_error_of_a_filter_keeps_its_type_and_reason(error: SleeperError) -> None:
    with pytest.raises(type(error)) as raised, engine_errors():
        _run_filter(error)
    assert str(raised.value) == str(error)


def test_another_error_of_a_filter_is_a_data_error() -> None:
    with pytest.raises(DataError, match="could not be read"), engine_errors():
        _run_filter(ValueError("the key file has no column k"))


def _run_filter(error: Exception) -> None:
    def fail(_: pa.Array) -> pa.Array:
        try:
            raise KeyError("the cause")
        except KeyError as cause:
            raise error from cause

    frame = SessionContext().from_pydict({"k": [1, 2]})
    is_kept = udf(fail, [pa.int64()], pa.bool_(), "immutable", "is_kept")
    frame.filter(is_kept(col("k"))).collect()
