"""Tables as DataFrames, through Spark itself."""

import datetime
import decimal

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

import sleeper
from sleeper.spark import read_table
from tests.spark.tables import NUMBERS, ingest_numbers, loaded, source_options
from tests.tables.opened import compact


def test_every_type_maps_to_its_spark_type(spark: SparkSession, instance: sleeper.Instance) -> None:
    table = instance.create_table(
        "t",
        {
            "rowKeyFields": [{"name": "key", "type": "ByteArrayType"}],
            "sortKeyFields": [{"name": "sort", "type": "IntType"}],
            "valueFields": [
                {"name": "list", "type": {"ListType": {"elementType": "StringType"}}},
                {
                    "name": "map",
                    "type": {"MapType": {"keyType": "StringType", "valueType": "LongType"}},
                },
                {"name": "time", "type": "TimestampType"},
                {"name": "day", "type": "DateType"},
                {
                    "name": "money",
                    "type": {"DecimalType": {"precision": 9, "scale": 2}},
                    "nullable": True,
                },
            ],
        },
    )
    moment = datetime.datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=datetime.UTC)
    row = {
        "key": b"\x00",
        "sort": -1,
        "list": ["é", ""],
        "map": [("x", 2**40)],
        "time": moment,
        "day": moment.date(),
        "money": None,
    }
    other = {**row, "key": b"\xff", "money": decimal.Decimal("-1.25")}
    table.ingest(pa.Table.from_pylist([row, other], schema=table.arrow_schema))
    first, second = loaded(spark, table).withColumn("time", f.unix_micros("time")).collect()
    micros = int(moment.timestamp()) * 1_000_000 + 5
    assert first == Row(
        key=bytearray(b"\x00"),
        sort=-1,
        list=["é", ""],
        map={"x": 2**40},
        time=micros,
        day=moment.date(),
        money=None,
    )
    assert second.money == decimal.Decimal("-1.25")


def test_spark_reads_only_the_rows_selected_by_options(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    table = instance.create_table("t", NUMBERS, split_points=[10, 20, 30])
    ingest_numbers(table, range(40))
    whole = loaded(spark, table, partitionBytes=1)
    assert whole.rdd.getNumPartitions() == 4
    assert whole.filter("n >= 35 OR text = 'text 3'").count() == 6
    some = loaded(spark, table, range="[15, 25]", columns="n", partitionBytes=1)
    assert (some.rdd.getNumPartitions(), some.columns) == (2, ["n"])
    assert some.agg(f.sum("n")).first() == Row(**{"sum(n)": sum(range(15, 25))})
    assert loaded(spark, table, keys="[1000]").count() == 0
    assert loaded(spark, table, keys="[7, 33]").orderBy("n").collect() == [
        Row(n=7, text="text 7"),
        Row(n=33, text="text 33"),
    ]


def test_a_loaded_table_keeps_its_version(spark: SparkSession, instance: sleeper.Instance) -> None:
    table = instance.create_table("t", NUMBERS)
    ingest_numbers(table, range(10))
    frame = loaded(spark, table)
    assert frame.count() == 10
    version = table.version
    ingest_numbers(table, range(10, 15))
    assert frame.count() == frame.join(frame.select("n"), "n").count() == 10
    assert loaded(spark, table).count() == 15
    assert loaded(spark, table, asOf=version).count() == 10


def test_fields_of_files_of_earlier_schemas(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    table = instance.create_table("t", NUMBERS, split_points=[10])
    ingest_numbers(table, range(20))
    table.rename_field("text", "name")
    table.add_field("text", "IntType", 5)
    new = spark.createDataFrame([(30, "new")], "n long, name string")
    new.write.format("sleeper").options(**source_options(table)).mode("append").save()
    frame = loaded(spark, table, partitionBytes=1)
    rows = frame.filter("n in (7, 30)").orderBy("n").collect()
    assert rows == [Row(n=7, name="text 7", text=5), Row(n=30, name="new", text=5)]
    assert loaded(spark, table, asOf=2, keys="[7]").collect() == [Row(n=7, text="text 7")]


def test_aggregations_of_the_table_are_applied(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    schema = {
        "rowKeyFields": [{"name": "k", "type": "StringType"}],
        "valueFields": [{"name": "n", "type": "LongType"}],
    }
    table = instance.create_table("t", schema, {"sleeper.table.aggregations": "sum(n)"})
    for _ in range(3):
        table.ingest(pa.table({"k": ["a", "b"], "n": [1, 10]}))
    assert loaded(spark, table).collect() == [Row(k="a", n=3), Row(k="b", n=30)]
    assert loaded(spark, table, columns="n").collect() == [Row(n=3), Row(n=30)]


def test_an_error_names_its_cause(spark: SparkSession, instance: sleeper.Instance) -> None:
    table = instance.create_table("t", NUMBERS)
    with pytest.raises(AnalysisException, match=r"unknown option 'rnage'"):
        loaded(spark, table, rnage="[1, 2]").count()
    with pytest.raises(AnalysisException, match="no field 'other'"):
        loaded(spark, table, columns="other")


@pytest.mark.parametrize("read", ["format", "read_table"])
def test_a_frame_has_the_rows_of_its_version_whatever_is_collected_between_its_partitions(
    spark: SparkSession, instance: sleeper.Instance, read: str
) -> None:
    properties = {"sleeper.table.gc.delay.minutes": "0"}
    table = instance.create_table("t", NUMBERS, properties, split_points=[100, 200])
    ingest_numbers(table, range(300))
    if read == "format":
        frame = loaded(spark, table, partitionBytes=1)
    else:
        frame = read_table(spark, "t", table._instance.where)
    found = []
    for row in frame.toLocalIterator():
        if row.n % 100 == 0:
            ingest_numbers(table, [1000 + row.n])
            compact(instance, "t")
            assert table.gc().files == 0
        found.append(row.n)
    assert sorted(found) == [*range(300)]
