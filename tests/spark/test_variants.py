"""Fields of JSON as variants of Spark, in reads, writes and streams."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import sleeper
from sleeper.errors import InvalidRequestError
from sleeper.spark import read_table, write_table
from tests.spark.tables import source_options

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [{"name": "doc", "type": "JSONType", "nullable": True}],
}
TEXTS = ['{"a":1.10,"b":[1,"é"]}', None, "null", "1180591620717411303424", " 7 "]
# Spark's numbers have no zeros at the end, and its text no space.
AS_VARIANTS = ['{"a":1.1,"b":[1,"é"]}', None, "null", "1180591620717411303424", "7"]


@pytest.fixture
def docs(instance: sleeper.Instance) -> sleeper.Table:
    table = instance.create_table("docs", SCHEMA)
    table.ingest(pa.table({"k": range(len(TEXTS)), "doc": pa.array(TEXTS, pa.string())}))
    return table


def texts(frame: DataFrame) -> list[str | None]:
    assert frame.schema["doc"].dataType.simpleString() == "variant"
    return [row[0] for row in frame.orderBy("k").select(f.to_json("doc")).collect()]


def test_the_format_and_read_table_read_variants_on_request(
    spark: SparkSession, docs: sleeper.Table
) -> None:
    reader = spark.read.format("sleeper").options(**source_options(docs))
    assert reader.load().schema["doc"].dataType.simpleString() == "string"
    assert texts(reader.option("json", "variant").load()) == AS_VARIANTS
    options: dict[str, Any] = source_options(docs)
    assert texts(read_table(spark, json="variant", **options)) == AS_VARIANTS
    # Rows of files with deleted rows come from Python.
    docs.delete(keys=[[4]])
    frame = read_table(spark, json="variant", columns="doc,k", **options)
    assert texts(frame) == AS_VARIANTS[:4]
    assert frame.columns == ["doc", "k"]
    with pytest.raises(InvalidRequestError, match=r"'json': 'xml' \(expected text or variant\)"):
        read_table(spark, json="xml", **options)


def test_variants_are_written_as_json(
    spark: SparkSession, instance: sleeper.Instance, docs: sleeper.Table, tmp_path: Path
) -> None:
    reader = spark.read.format("sleeper").options(**source_options(docs))
    variants = reader.option("json", "variant").load()
    copies = [instance.create_table(name, SCHEMA) for name in ("batch", "function", "stream")]
    batch, function, stream = (source_options(each) for each in copies)
    variants.write.format("sleeper").options(**batch).mode("append").save()
    write_table(variants, **function)
    rows = spark.readStream.format("sleeper").options(**source_options(docs))
    writer = rows.option("json", "variant").load().writeStream.format("sleeper")
    writer = writer.options(**stream, checkpointLocation=str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(60)
    expected = [None if each is None else json.loads(each) for each in AS_VARIANTS]
    for copy in copies:
        texts = copy.query().to_arrow()["doc"].cast(pa.string()).to_pylist()
        assert [None if each is None else json.loads(each) for each in texts] == expected
    inside = variants.select("k", f.array("doc").alias("doc"))
    with pytest.raises(InvalidRequestError, match="column 'doc' has variants inside"):
        write_table(inside, **function)
