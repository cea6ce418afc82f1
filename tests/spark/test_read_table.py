"""`read_table`: the rows of the format `sleeper`, by Spark's own reader where that is possible."""

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import sleeper
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.opening import open_instance
from sleeper.spark import read_table
from tests.spark.tables import NUMBERS, ingest_numbers, loaded, source_options


def read(spark: SparkSession, table: sleeper.Table, **options: object) -> DataFrame:
    names = source_options(table, **options)
    return read_table(spark, names.pop("table"), **names)


def is_read_by_spark(frame: DataFrame) -> bool:
    plan: Any = frame
    return " parquet" in plan._jdf.queryExecution().optimizedPlan().toString()


def is_read_by_both(frame: DataFrame) -> bool:
    plan: Any = frame
    return is_read_by_spark(frame) and "MapInArrow" in (
        plan._jdf.queryExecution().optimizedPlan().toString()
    )


def ordered(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=str)


def test_every_type_is_read_as_by_the_format(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    kinds: dict[str, object] = {
        "list": {"ListType": {"elementType": "StringType"}},
        "map": {"MapType": {"keyType": "StringType", "valueType": "LongType"}},
        "time": "TimestampType",
        "day": "DateType",
        "money": {"DecimalType": {"precision": 9, "scale": 2}},
        "large": {"DecimalType": {"precision": 38, "scale": 0}},
        "flag": "BooleanType",
        "float": "FloatType",
        "double": "DoubleType",
        "a.b `c`": "StringType",
    }
    table = instance.create_table(
        "t",
        {
            "rowKeyFields": [{"name": "key", "type": "ByteArrayType"}],
            "sortKeyFields": [{"name": "sort", "type": "IntType"}],
            "valueFields": [{"name": n, "type": k, "nullable": True} for n, k in kinds.items()],
        },
    )
    old = datetime.datetime(1500, 1, 31, 12, 0, 0, 5, tzinfo=datetime.UTC)
    row = {
        "key": b"\x00",
        "sort": -1,
        "list": ["é", ""],
        "map": [("x", 2**40)],
        "time": old,
        "day": old.date(),
        "money": decimal.Decimal("-1.25"),
        "large": decimal.Decimal(10**38 - 1),
        "flag": True,
        "float": 0.1,
        "double": float("inf"),
        "a.b `c`": "",
    }
    empty = dict.fromkeys(row) | {"key": b"\xff\x80", "sort": 2}
    table.ingest(pa.Table.from_pylist([row, empty], schema=table.arrow_schema))
    table.ingest(pa.Table.from_pylist([{**row, "key": b"\x80"}], schema=table.arrow_schema))
    frame = read(spark, table)
    assert is_read_by_spark(frame)
    columns = [f"CAST({n} AS STRING)" for n in ("time", "day", "map", "large")]
    columns += ["key", "sort", "list", "money", "flag", "float", "double", "`a.b ``c```"]
    assert ordered(frame.selectExpr(*columns)) == ordered(loaded(spark, table).selectExpr(*columns))
    some = read(spark, table, range='["gA==", null]', columns='["sort", "a.b `c`"]')
    assert is_read_by_spark(some)
    assert ordered(some) == ordered(
        loaded(spark, table, range='["gA==", null]').select(*some_names)
    )


some_names = ["sort", "`a.b ``c```"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"range": "[15, 25]"},
        {"ranges": "[[null, 3], [10, 12], [35, null]]", "columns": "text"},
        {"keys": "[7, 33, 1000]"},
        {"keys": "[]"},
        {"asOf": 2},
    ],
)
def test_options_select_the_same_rows(
    spark: SparkSession, instance: sleeper.Instance, options: dict[str, object]
) -> None:
    table = instance.create_table("t", NUMBERS, split_points=[10, 20, 30])
    ingest_numbers(table, range(40))
    ingest_numbers(table, range(5, 60, 5))
    table.delete(ranges=[(12, 14), (39, 41)])
    frame = read(spark, table, **options)
    assert is_read_by_spark(frame) == (options != {"keys": "[]"})
    assert not is_read_by_both(frame)
    assert ordered(frame) == ordered(loaded(spark, table, **options))


def test_rows_that_need_more_than_their_file_are_read_by_the_format(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    summed = instance.create_table("summed", NUMBERS, {"sleeper.table.aggregations": "max(text)"})
    renamed, deleted = (instance.create_table(name, NUMBERS) for name in ("renamed", "deleted"))
    for table in (summed, renamed, deleted):
        for _ in range(2):
            ingest_numbers(table, range(5))
    renamed.rename_field("text", "words")
    deleted.delete(keys=pa.table({"n": [1, 3]}))
    for table, rows in ((summed, 5), (renamed, 10), (deleted, 6)):
        frame = read(spark, table)
        assert not is_read_by_spark(frame)
        assert frame.count() == rows, table.name


def test_files_that_need_more_are_read_beside_those_of_spark(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    table = instance.create_table("t", NUMBERS)
    ingest_numbers(table, range(5))
    table.rename_field("text", "words")
    for first in (5, 10):
        numbers = list(range(first, first + 5))
        table.ingest(pa.table({"n": numbers, "words": [str(n) for n in numbers]}))
    table.delete(keys=pa.table({"n": [6, 7]}))
    frame = read(spark, table, columns="words,n")
    assert is_read_by_both(frame)
    assert ordered(frame) == ordered(loaded(spark, table).select("words", "n"))
    assert frame.count() == 13
    assert frame.where("n >= 10").agg({"n": "sum"}).collect() == [Row(**{"sum(n)": 60})]


def test_a_read_of_many_groups_of_files_is_of_few_scans(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    table = instance.create_table("t", NUMBERS)
    firsts = range(0, 200, 10)
    for first in firsts:
        ingest_numbers(table, (first, first + 5))
    ranges = str([[first, first + 2] for first in firsts])
    frame = read(spark, table, ranges=ranges)
    assert is_read_by_both(frame)
    plan: Any = frame
    assert plan._jdf.queryExecution().optimizedPlan().toString().count(" parquet") == 16
    assert [row.n for row in ordered(frame)] == sorted(firsts, key=str)
    assert ordered(frame) == ordered(loaded(spark, table, ranges=ranges))


def test_the_version_of_a_frame_is_held(spark: SparkSession, instance: sleeper.Instance) -> None:
    table = instance.create_table("t", NUMBERS)
    ingest_numbers(table, range(10))
    frame = read(spark, table)
    ingest_numbers(table, range(10, 15))
    assert frame.count() == frame.join(frame.select("n"), "n").count() == 10
    ports = open_instance(table._instance.where)
    assert [hold.owner for hold in ports.table("t").state.holds.all()] == ["spark"]
    ports.close()


def test_errors(spark: SparkSession, instance: sleeper.Instance) -> None:
    table = instance.create_table("t", NUMBERS)
    with pytest.raises(InvalidRequestError, match="unknown option 'rnage'"):
        read(spark, table, rnage="[1, 2]")
    with pytest.raises(NotFoundError):
        read_table(spark, "other", table._instance.where)
