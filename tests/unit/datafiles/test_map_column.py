"""Functions of DataFusion over a column."""

import base64

import pyarrow as pa
import pytest
from datafusion import functions

from sleeper.datafiles.engine import session
from sleeper.datafiles.engine.session import map_column
from sleeper.datafiles.json_text import plain_text
from sleeper.datafiles.text_values import parse_values
from sleeper.schema.model import PrimitiveType

# DataFusion divides columns of this many values and computes the parts in parallel.
MANY = 50_000


def test_many_values_keep_their_order() -> None:
    values = [f"value {n}" for n in range(MANY)]
    found = map_column(pa.array([*values, None]), functions.upper, pa.string())
    assert found.to_pylist() == [*(value.upper() for value in values), None]


def test_many_bytes_keep_their_order_as_base64() -> None:
    values = [b"%d" % n for n in range(MANY)]
    texts = [base64.b64encode(value).decode() for value in values]
    assert plain_text(pa.array(values)).to_pylist() == texts
    assert parse_values(pa.array(texts), PrimitiveType.BYTE_ARRAY).to_pylist() == values


@pytest.mark.parametrize("values", [[], [None]])
def test_columns_without_values(values: list[str | None]) -> None:
    found = map_column(pa.array(values, pa.string()), functions.upper, pa.string())
    assert found.to_pylist() == values


def test_no_column_stays_in_memory() -> None:
    map_column(pa.array(["a"]), functions.upper, pa.string())
    assert session._column_session().catalog().schema().names() == set()
