"""Enrichment of DataFrames with the values of a store."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import sleeper
from sleeper.errors import InvalidRequestError, NotFoundError, UnavailableError
from sleeper.spark import StoreSource, enrich
from tests.spark.tables import NUMBERS, source_options

ACCOUNTS = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [
        {"name": "country", "type": "StringType", "nullable": True},
        {"name": "opened", "type": "TimestampType", "nullable": True},
        {"name": "score", "type": "DoubleType"},
    ],
}
PAIRS = {
    "rowKeyFields": [{"name": "a", "type": "StringType"}, {"name": "b", "type": "IntType"}],
    "valueFields": [{"name": "v", "type": "LongType"}],
}
TRIES = 5


@pytest.fixture
def accounts(instance: sleeper.Instance) -> sleeper.Table:
    return instance.create_table("accounts", ACCOUNTS, {"sleeper.table.rows": "latest"})


def put(table: sleeper.Table, ids: range, country: str = "NO") -> None:
    rows = {
        "id": [*ids],
        "country": [None if n % 5 == 0 else f"{country}{n}" for n in ids],
        "opened": pa.array([n * 1_000_000 for n in ids], pa.timestamp("us", "UTC")),
        "score": [n / 2 for n in ids],
    }
    table.ingest(pa.table(rows))


def source(table: sleeper.Table, path: Path) -> StoreSource:
    return StoreSource(f"table:{table.name}", table._instance.where, str(path / "stores"))


def numbers(spark: SparkSession, ids: range, parts: int = 3) -> DataFrame:
    return spark.range(ids.start, ids.stop, ids.step, parts).withColumnRenamed("id", "account")


def as_dict(df: DataFrame) -> dict[int, Any]:
    return {row[0]: row[1] for row in df.collect()}


def collected(df: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in df.select(*columns).collect())


def test_rows_get_the_values_of_their_keys(
    spark: SparkSession, accounts: sleeper.Table, tmp_path: Path
) -> None:
    put(accounts, range(1000))
    store = source(accounts, tmp_path)
    enriched = enrich(numbers(spark, range(-5, 1005)), store, on="account")
    assert enriched.schema.simpleString() == (
        "struct<account:bigint,country:string,opened:timestamp,score:double>"
    )
    # The same as Spark's own join.
    table = spark.read.format("sleeper").options(**source_options(accounts)).load()
    joined = numbers(spark, range(-5, 1005)).join(
        table.withColumnRenamed("id", "account"), "account", "left"
    )
    columns = ["account", "country", "opened", "score"]
    expected = {tuple(row) for row in joined.select(columns).collect()}
    assert len(expected) == 1010
    assert {tuple(row) for row in enriched.select(columns).collect()} == expected
    # Many lookups use the columns of the store.
    many = spark.range(0, 300_000, 1, 2).selectExpr("id", "id % 1005 AS account")
    again = enrich(many, store, {"id": "account"}, {"score": "s"}, how="inner")
    assert again.columns == ["id", "account", "s"]
    wrong = again.filter("s <> account / 2 OR s IS NULL OR account > 999")
    assert (again.count(), wrong.count()) == (sum(n % 1005 < 1000 for n in range(300_000)), 0)
    assert [*(tmp_path / "stores").glob("accounts-*/v-*/columns-*")]
    found = enrich(numbers(spark, range(990, 1005)), store, "account", [], how="inner")
    assert collected(found, "account") == [(n,) for n in range(990, 1000)]


def test_a_data_frame_keeps_its_dataset(
    spark: SparkSession, accounts: sleeper.Table, tmp_path: Path
) -> None:
    put(accounts, range(10), "A")
    store = source(accounts, tmp_path)
    before = enrich(numbers(spark, range(12)), store, "account", ["country"])
    put(accounts, range(5, 11), "B")
    accounts.delete([(1,)])
    after = enrich(numbers(spark, range(12)), store, "account", ["country"])
    for _ in range(2):
        countries = as_dict(after)
        assert (countries[1], countries[4], countries[6], countries[11]) == (None, "A4", "B6", None)
        countries = as_dict(before)
        assert (countries[1], countries[4], countries[6], countries[11]) == ("A1", "A4", "A6", None)


def test_a_partitioned_store_has_the_keys_of_its_partition(
    spark: SparkSession, instance: sleeper.Instance, tmp_path: Path
) -> None:
    pairs = instance.create_table("pairs", PAIRS)
    rows = [(f"k{n % 40}", n - 100, n) for n in range(200)]
    pairs.ingest(
        pa.table(
            {
                "a": [row[0] for row in rows],
                "b": pa.array([row[1] for row in rows], pa.int32()),
                "v": [row[2] for row in rows],
            }
        )
    )
    keys = spark.createDataFrame(
        [(a, b) for a, b, _ in rows] + [("no", 1), (None, 1)], "x string, y long"
    )
    store = source(pairs, tmp_path)
    enriched = enrich(keys, store, {"b": "y", "a": "x"}, how="inner", partitions=3)
    assert enriched.columns == ["x", "y", "v"]
    assert sorted(tuple(row) for row in enriched.collect()) == sorted(rows)
    folders = sorted(each.name.split("-", 2)[2] for each in (tmp_path / "stores").glob("pairs-*"))
    assert folders == ["0-of-3", "1-of-3", "2-of-3"]
    # Each store has a part of the keys, although Spark merges small partitions.
    union = enriched.coalesce(1).union(enriched)
    assert union.count() == 400
    left = enrich(keys, store, ["x", "y"], prefix="p_", partitions=3)
    assert left.filter("p_v IS NULL").count() == 2


def test_a_snapshot_table_is_read_at_its_newest_version(
    spark: SparkSession, instance: sleeper.Instance, tmp_path: Path
) -> None:
    table = instance.create_table("daily", NUMBERS, {"sleeper.table.type": "snapshot"})
    store = source(table, tmp_path)
    with pytest.raises(UnavailableError, match="table:daily has no complete dataset yet"):
        enrich(numbers(spark, range(3)), store, "account")
    for version in ("first", "second"):
        table.ingest(pa.table({"n": [1, 2], "text": [version, version]}))
        enriched = enrich(numbers(spark, range(1, 3)), store, "account")
        assert collected(enriched, "account", "text") == [(1, version), (2, version)]


def test_a_stream_reads_the_newest_dataset_in_each_micro_batch(
    spark: SparkSession, accounts: sleeper.Table, instance: sleeper.Instance, tmp_path: Path
) -> None:
    events = instance.create_table("events", NUMBERS, split_points=[50])
    put(accounts, range(100), "A")
    seen: dict[int, str] = {}

    def check(batch: DataFrame, number: int) -> None:
        rows = batch.collect()
        assert len(rows) == 20
        # All rows of a micro-batch have one dataset.
        (country,) = {row.country[0] for row in rows if row.country}
        seen[number] = country
        put(accounts, range(100), chr(ord("A") + len(seen)))

    for first in range(0, 60, 20):
        values = [*range(first, first + 20)]
        events.ingest(pa.table({"n": values, "text": ["" for _ in values]}))
    options = source_options(events, maxFilesPerTrigger=1)
    rows = spark.readStream.format("sleeper").options(**options).load()
    enriched = enrich(rows.repartition(3), source(accounts, tmp_path), "n", ["country"])
    sink = enriched.writeStream.foreachBatch(check).trigger(availableNow=True)
    sink = sink.option("checkpointLocation", str(tmp_path / "c"))
    for attempt in range(TRIES):
        try:
            sink.start().awaitTermination()
            break
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error) or attempt == TRIES - 1:
                raise
    assert seen == {0: "A", 1: "B", 2: "C"}


def test_a_store_that_cannot_be_opened_fails_the_task(
    spark: SparkSession, accounts: sleeper.Table, tmp_path: Path
) -> None:
    put(accounts, range(10))
    (tmp_path / "stores").write_text("a file")
    enriched = enrich(numbers(spark, range(3), 1), source(accounts, tmp_path), "account")
    with pytest.raises(PythonException, match=r"cannot create the folder of stores .*stores"):
        enriched.collect()


def test_wrong_arguments_are_refused_at_the_call(
    spark: SparkSession, accounts: sleeper.Table, tmp_path: Path
) -> None:
    store = source(accounts, tmp_path)
    df = numbers(spark, range(3)).selectExpr("account", "'x' AS Country", "1.5 AS d")
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"on": "id"}, r"no column 'id' \(expected one of: account, Country, d\)"),
        ({"on": {"key": "account"}}, r"on has the key fields key \(expected id\)"),
        ({"on": ["account", "d"]}, r"2 columns of keys \(expected 1: id\)"),
        ({"on": "Country"}, "keys in column 'Country' are of type string"),
        ({"on": "account"}, "column 'country' exists already"),
        ({"on": "account", "fields": {"score": "D"}}, "column 'D' exists already"),
        ({"on": "account", "fields": "score"}, "expected a list of names"),
        ({"on": "account", "fields": ["scores"]}, "has no value field 'scores'"),
        ({"on": "account", "how": "right"}, "how='right'"),
        ({"on": "account", "partitions": 0}, "partitions=0"),
    )
    for arguments, error in cases:
        with pytest.raises(InvalidRequestError, match=error):
            enrich(df, store, **arguments)
    with pytest.raises(NotFoundError, match="nothing"):
        enrich(df, StoreSource("table:nothing", store.instance), "account")
    with pytest.raises(InvalidRequestError, match="input 'kafka://h/t' has no datasets"):
        enrich(df, "kafka://h/t", "account")
    assert not (tmp_path / "stores").exists()
