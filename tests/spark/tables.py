"""Small tables for tests on Spark, and how a DataFrame names them."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import sleeper

NUMBERS = {
    "rowKeyFields": [{"name": "n", "type": "LongType"}],
    "valueFields": [{"name": "text", "type": "StringType", "nullable": True}],
}


def source_options(table: sleeper.Table, **options: object) -> dict[str, str]:
    """The options of a table."""
    required = {"instance": table._instance.where, "table": table.name}
    return {**required, **{name: str(value) for name, value in options.items()}}


def loaded(spark: SparkSession, table: sleeper.Table, **options: object) -> DataFrame:
    """A DataFrame of the table as it is now."""
    return spark.read.format("sleeper").options(**source_options(table, **options)).load()


def ingest_numbers(table: sleeper.Table, numbers: Iterable[int]) -> None:
    """A row for each."""
    values = list(numbers)
    table.ingest(pa.table({"n": values, "text": [f"text {n}" for n in values]}))


def numbers_in(table: sleeper.Table) -> list[int]:
    """In order."""
    rows: list[Any] = table.query(columns=["n"]).to_arrow().column(0).to_pylist()
    return rows
