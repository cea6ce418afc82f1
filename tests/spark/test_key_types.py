"""Keys of times, dates, booleans and decimals, through Spark itself."""

import datetime
import decimal
import json
from typing import Any

import pyarrow as pa
from pyspark.sql import Row, SparkSession

import sleeper
import sleeper.spark
from sleeper.spark import read_table
from tests.spark.tables import loaded, source_options

FIELDS = {
    "at": "TimestampType",
    "day": "DateType",
    "is_open": "BooleanType",
    "fare": {"DecimalType": {"precision": 9, "scale": 2}},
}
NOON = datetime.datetime(2013, 1, 1, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


def test_rows_with_such_keys_are_written_read_and_deleted(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    fields = [{"name": name, "type": kind} for name, kind in FIELDS.items()]
    values = [{"name": "v", "type": "LongType"}]
    points = ["2013-01-05", "2013-01-09"]
    table = instance.create_table(
        "t", {"rowKeyFields": fields, "valueFields": values}, split_points=points
    )
    where = table._instance.where
    rows = [
        {
            "at": NOON + n * DAY,
            "day": (NOON + n * DAY).date(),
            "is_open": n % 2 == 0,
            "fare": decimal.Decimal(n) / 4,
            "v": n,
        }
        for n in range(12)
    ]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, table.arrow_schema).to_pandas())
    frame = frame.withColumn("fare", frame.fare.cast("decimal(9,2)"))
    frame.write.format("sleeper").mode("append").options(**source_options(table)).save()

    def numbers(frame: Any) -> list[int]:
        return sorted(row.v for row in frame.select("v").collect())

    assert loaded(spark, table, partitionBytes=1).rdd.getNumPartitions() == 3
    assert numbers(loaded(spark, table)) == [*range(12)]
    within = json.dumps(["2013-01-03T12:00:00Z", "2013-01-06"])
    assert numbers(loaded(spark, table, range=within)) == [2, 3, 4]
    names = source_options(table, range=within)
    assert numbers(read_table(spark, names.pop("table"), **names)) == [2, 3, 4]
    key = ["2013-01-03T12:00:00Z", "2013-01-03", True, "0.50"]
    assert numbers(loaded(spark, table, keys=json.dumps([key]))) == [2]
    region = {"fare": {"min": 1, "max": "1.5"}, "is_open": {"min": True}}
    assert numbers(loaded(spark, table, region=json.dumps(region))) == [4]
    names = source_options(table, region=json.dumps(region))
    assert numbers(read_table(spark, names.pop("table"), **names)) == [4]
    keys = loaded(spark, table).filter("v < 2").select(*FIELDS)
    assert sleeper.spark.delete_keys(keys, "t", where).keys == 2
    sleeper.spark.delete_where(
        "at >= TIMESTAMP '2013-01-11 00:00:00' OR day = DATE '2013-01-04' AND is_open = FALSE",
        "t",
        where,
    )
    assert numbers(loaded(spark, table)) == [2, *range(4, 10)]
    assert loaded(spark, table).select("day", "is_open", "fare").first() == Row(
        day=datetime.date(2013, 1, 3), is_open=True, fare=decimal.Decimal("0.50")
    )
