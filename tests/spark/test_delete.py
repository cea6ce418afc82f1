"""Rows deleted by Spark, through Spark itself."""

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import sleeper
import sleeper.spark
from sleeper.errors import ConflictError, InvalidRequestError
from tests.spark.tables import NUMBERS, ingest_numbers, loaded, numbers_in

PLACES = {
    "rowKeyFields": [
        {"name": "city", "type": "StringType"},
        {"name": "raw", "type": "ByteArrayType"},
        {"name": "day", "type": "IntType"},
    ],
    "valueFields": [{"name": "v", "type": "LongType"}],
}


def test_the_keys_of_a_frame_are_deleted_once(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    table = instance.create_table("t", NUMBERS)
    ingest_numbers(table, range(100))
    where = table._instance.where

    # Read from the table itself: a second call would find no such rows.
    even = loaded(spark, table).filter("n % 2 = 0").select("n")
    deleted = sleeper.spark.delete_keys(even, "t", where, delete_id="even")
    assert (deleted.keys, deleted.already_done) == (50, False)
    assert numbers_in(table) == [*range(1, 100, 2)]
    assert loaded(spark, table).count() == 50
    ingest_numbers(table, [2, 4])
    again = loaded(spark, table).filter("n % 2 = 0").select("n")
    repeated = sleeper.spark.delete_keys(again, "t", where, delete_id="even")
    assert (repeated.number, repeated.already_done) == (deleted.number, True)
    assert numbers_in(table)[:5] == [1, 2, 3, 4, 5]

    few = spark.createDataFrame([(1,), (1,), (3,)], "n int")  # duplicates, and a smaller type
    assert sleeper.spark.delete_keys(few, "t", where).keys == 2
    assert numbers_in(table)[:3] == [2, 4, 5]


def test_keys_of_several_fields_and_all_types(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    table = instance.create_table("t", PLACES)
    rows = [("a", b"\0", 1), ("a", b"\0", 2), ("é'", b"\xff", -5), ("", b"", 0)]
    cities, raws, days = zip(*rows, strict=True)
    table.ingest(pa.table({"city": cities, "raw": raws, "day": days, "v": range(4)}))
    keys = [(1, "a", bytearray(b"\0")), (-5, "é'", bytearray(b"\xff"))]
    frame = spark.createDataFrame(keys, "day int, city string, raw binary")
    sleeper.spark.delete_keys(frame, "t", table._instance.where)
    assert sorted(table.query().to_arrow()["v"].to_pylist()) == [1, 3]


def test_frames_that_are_no_keys_delete_nothing(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    table = instance.create_table("t", NUMBERS)
    ingest_numbers(table, range(10))
    version = table.version
    for frame, reason in (
        (loaded(spark, table), "columns of the DataFrame: n, text (expected the row key fields n)"),
        (spark.range(3), "columns of the DataFrame: id (expected the row key fields n)"),
        (spark.sql("SELECT CAST(NULL AS LONG) AS n"), "null"),
        (spark.sql("SELECT 1.5D AS n"), "1.5"),
        (spark.range(0).withColumnRenamed("id", "n"), "no rows to delete"),
    ):
        with pytest.raises(InvalidRequestError) as refusal:
            sleeper.spark.delete_keys(frame, "t", table._instance.where)
        assert reason in str(refusal.value)
    assert table.version == version
    assert numbers_in(table) == [*range(10)]


def test_a_condition_on_key_fields_deletes_once(instance: sleeper.Instance) -> None:
    table = instance.create_table("t", NUMBERS)
    ingest_numbers(table, range(20))
    where = table._instance.where
    condition = "n BETWEEN 3 AND 5 OR n IN (9, 11) OR n > 17"
    deleted = sleeper.spark.delete_where(condition, "t", where, delete_id="c")
    expected = [0, 1, 2, 6, 7, 8, 10, 12, 13, 14, 15, 16, 17]
    assert numbers_in(table) == expected
    assert sleeper.spark.delete_where(condition, "t", where, delete_id="c").already_done
    with pytest.raises(ConflictError, match="'t'"):
        sleeper.spark.delete_where("n = 1", "t", where, delete_id="c")
    for refused, reason in (
        ("text = 'a'", "'text' at character 1 is not a row key field"),
        ("n > 5 AND n < 3", "no key fulfils the condition 'n > 5 AND n < 3'"),
    ):
        with pytest.raises(InvalidRequestError, match=reason):
            sleeper.spark.delete_where(refused, "t", where)
    assert numbers_in(table) == expected
    assert table.version == deleted.number
