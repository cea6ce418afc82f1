"""Tables that are created like frames, Arrow data and files in Python."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import Field, ListType, PrimitiveType

P = PrimitiveType
ROWS: dict[str, list[Any]] = {"city": ["Oslo", "Lima"], "day": [1, 2], "celsius": [-3.5, None]}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[sleeper.Instance]:
    with sleeper.create_instance(tmp_path / "i") as opened_instance:
        yield opened_instance


@pytest.mark.parametrize(
    "like",
    [
        pd.DataFrame(ROWS),
        pl.DataFrame(ROWS),
        pa.table(ROWS),
        pa.table(ROWS).schema,
        pa.table(ROWS).to_batches()[0],
        pa.table(ROWS).to_reader(),
    ],
    ids=lambda like: f"{type(like).__module__}.{type(like).__name__}",
)
def test_table_is_created_like_data(instance: sleeper.Instance, like: Any) -> None:
    table = instance.create_table("t", like=like, key="city", sort=["day"])
    assert table.schema.row_keys == (Field("city", P.STRING, id=1),)
    assert table.schema.sort_keys == (Field("day", P.LONG, id=2),)
    assert table.schema.values == (Field("celsius", P.DOUBLE, nullable=True, id=3),)
    table.ingest(pa.table(ROWS))
    assert table.query().to_arrow().num_rows == 2


def test_columns_of_few_values_of_polars_are_text(instance: sleeper.Instance) -> None:
    frame = pl.DataFrame(
        {"city": ["Oslo", "Lima"], "sky": ["sun", None], "wind": ["low", "high"]},
        schema={"city": pl.String, "sky": pl.Categorical, "wind": pl.Enum(["low", "high"])},
    ).with_columns(past=pl.col("sky").drop_nulls().implode().over("city"))
    table = instance.create_table("t", like=frame, key="city")
    assert [f.type for f in table.schema.values] == [P.STRING, P.STRING, ListType(P.STRING)]
    table.ingest(frame)
    assert table.query().to_arrow().to_pylist() == [
        {"city": "Lima", "sky": None, "wind": "high", "past": []},
        {"city": "Oslo", "sky": "sun", "wind": "low", "past": ["sun"]},
    ]


def test_table_is_created_like_files(instance: sleeper.Instance, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("city;day\nOslo;1\n")
    (tmp_path / "b.csv").write_text("city|celsius|day\nLima|19|2\n")
    schema = instance.infer_schema(tmp_path / "a.csv", key="city", types={"day": "IntType"})
    assert [(f.name, f.type) for f in schema.fields] == [("city", P.STRING), ("day", P.INT)]
    table = instance.create_table(
        "t", like=str(tmp_path / "*.csv"), key=["city"], sort="day", types={"celsius": P.DOUBLE}
    )
    table.ingest([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert table.query().to_arrow().to_pylist() == [
        {"city": "Lima", "day": 2, "celsius": 19.0},
        {"city": "Oslo", "day": 1, "celsius": None},
    ]
    (tmp_path / "c.txt").write_bytes("Málaga~3\n".encode("utf-16-le"))
    how: dict[str, Any] = {"delimiter": "~", "encoding": "utf-16-le", "columns": ["city", "day"]}
    table.ingest(tmp_path / "c.txt", format="csv", **how)
    assert table.query(keys=[["Málaga"]]).to_arrow().num_rows == 1


def test_nested_columns_of_data_are_json_or_text_on_request(instance: sleeper.Instance) -> None:
    rows = pa.table({"id": [1, 2], "v": [{"a": 1}, None]})
    of_values = instance.create_table("values", like=rows, key="id")
    of_values.ingest(rows)
    assert of_values.query().to_arrow().schema.field("v").type == pa.json_()
    table = instance.create_table("t", like=rows, key="id", nested="json")
    with pytest.raises(InvalidRequestError, match=r"field 'v' is struct.*nested='json'"):
        table.ingest(rows)
    table.ingest(rows, nested="json")
    for each in (of_values, table):
        assert each.query().to_arrow().column("v").to_pylist() == ['{"a":1}', None]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "expected a schema, or like"),
        ({"schema": "{}", "like": "a.csv"}, "expected a schema, or like"),
        ({"schema": "{}", "key": "a"}, "expected a schema, or like"),
        ({"like": [1, 2], "key": "a"}, "unsupported rows: list"),
        ({"like": pa.table({"a": [None, "x"]}), "key": "a"}, "row 1: column 'a' has no value"),
        ({"like": pa.table({"a": ["x"]}), "key": "b"}, "no column 'b'"),
        ({"like": pa.table({"a": ["x"]}), "key": "a", "format": "xls"}, "unknown format"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(
    instance: sleeper.Instance, arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        instance.create_table("t", **arguments)
    assert instance.tables() == []
