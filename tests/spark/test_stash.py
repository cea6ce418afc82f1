"""Tables of a stash as DataFrames, each read from the stash that it began with."""

import datetime
import decimal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import sleeper
from sleeper.clock import system_clock
from sleeper.errors import NotFoundError
from sleeper.spark import read_stash
from sleeper.stash import Stash
from sleeper.stash.finish import complete_stash
from sleeper.stash.planning import plan_stash, read_task
from sleeper.stash.record import StashRequest
from sleeper.stash.run import run_stash
from sleeper.stash.spark import job as stash_job
from sleeper.stash.start import start_stash
from tests.spark.tables import NUMBERS, ingest_numbers

TYPES: dict[str, Any] = {
    "rowKeyFields": [{"name": "key", "type": "ByteArrayType"}],
    "sortKeyFields": [{"name": "sort", "type": "IntType"}],
    "valueFields": [
        {"name": "list", "type": {"ListType": {"elementType": "StringType"}}},
        {"name": "map", "type": {"MapType": {"keyType": "StringType", "valueType": "LongType"}}},
        {"name": "time", "type": "TimestampType"},
        {"name": "day", "type": "DateType"},
        {
            "name": "money",
            "type": {"DecimalType": {"precision": 9, "scale": 2}},
            "nullable": True,
        },
        {"name": "~id", "type": "StringType"},
    ],
}


def make_stash(instance: sleeper.Instance, destination: Path, second: int = 0) -> str:
    """Makes a stash with a name of its own, and returns that."""
    ports = replace(instance._ports, clock=lambda: system_clock() + second * 1000)
    return run_stash(ports, str(destination)).root


def test_a_dataframe_has_a_partition_per_file_and_keeps_its_stash(
    spark: SparkSession, instance: sleeper.Instance, tmp_path: Path
) -> None:
    table = instance.create_table("a:numbers", NUMBERS, split_points=[10, 20])
    instance.create_table("a:empty", NUMBERS)
    ingest_numbers(table, range(30))
    first = make_stash(instance, tmp_path / "stash")
    frame = read_stash(spark, str(tmp_path / "stash"), "a:numbers")
    ingest_numbers(table, [30])
    make_stash(instance, tmp_path / "stash", second=2)
    assert frame.rdd.getNumPartitions() == 3
    assert sorted(row.n for row in frame.select("n").collect()) == list(range(30))
    latest = read_stash(spark, str(tmp_path / "stash"), "a:numbers")
    assert latest.count() == 31
    assert read_stash(spark, str(tmp_path / "stash"), "a:numbers", at=first).count() == 30
    empty = read_stash(spark, str(tmp_path / "stash"), "a:empty")
    assert (empty.count(), empty.columns) == (0, latest.columns)


def test_columns_have_the_types_of_the_table(
    spark: SparkSession, instance: sleeper.Instance, tmp_path: Path
) -> None:
    table = instance.create_table("types", TYPES)
    moment = datetime.datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=datetime.UTC)
    row = {
        "key": b"\x00",
        "sort": -1,
        "list": ["é", ""],
        "map": [("x", 2**40)],
        "time": moment,
        "day": moment.date(),
        "money": decimal.Decimal("-1.25"),
        "~id": "own",
    }
    table.ingest(pa.Table.from_pylist([row, {**row, "money": None}], schema=table.arrow_schema))
    make_stash(instance, tmp_path / "stash")
    (rows,) = [read_stash(spark, str(tmp_path / "stash"), "types").toArrow().to_pylist()]
    with Stash.open(str(tmp_path / "stash")).scan("types") as scanned:
        expected = pa.Table.from_batches(scanned.batches()).to_pylist()
    assert [dict(each) for each in rows] == expected
    assert (rows[0]["~~id"], rows[0]["~id"], rows[0]["~version"]) == ("own", "AA==", 2)


def test_options_select_columns_and_faults_are_named(
    spark: SparkSession, instance: sleeper.Instance, tmp_path: Path
) -> None:
    ingest_numbers(instance.create_table("numbers", NUMBERS), range(3))
    destination = str(tmp_path / "stash")
    with pytest.raises(NotFoundError, match="no stash"):
        read_stash(spark, destination, "numbers")
    name = make_stash(instance, tmp_path / "stash")
    with pytest.raises(NotFoundError, match="no table 'number'"):
        read_stash(spark, destination, "number")
    reader = spark.read.format("sleeper-stash").option("destination", destination)
    some = reader.options(table="numbers", at=name, columns="n,~version").load()
    assert [tuple(row) for row in some.orderBy("n").collect()] == [(0, 2), (1, 2), (2, 2)]
    declared = reader.schema("n bigint").option("columns", None).load()
    assert declared.count() == 3
    for option, value, message in (
        ("columns", "m", "no field 'm'"),
        ("at", "yesterday", "'yesterday' is not the name of a stash"),
        ("asOf", "3", "unknown option 'asof'"),
    ):
        wrong = spark.read.format("sleeper-stash").options(destination=destination, table="numbers")
        with pytest.raises(AnalysisException, match=message):
            wrong.option(option, value).load().count()
    with pytest.raises(AnalysisException, match="'n' is declared as string"):
        reader.schema("n string").load().count()


def test_spark_writes_the_tasks_of_a_table_that_are_not_done(
    spark: SparkSession,
    instance: sleeper.Instance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = instance.create_table("numbers", NUMBERS, split_points=[10, 20])
    for first in range(0, 30, 10):
        ingest_numbers(table, range(first, first + 10))
    request = StashRequest(str(tmp_path / "stash"), piece_bytes=500, submitted=True)
    record = start_stash(instance._ports, request)
    (version,) = plan_stash(instance._ports, record, "test", spark_bytes=1)
    arguments = (instance._ports.where, "--stash", record.key, "--table", version.id)
    monkeypatch.setattr(sys, "argv", ["stash_job", *arguments])
    tasks = record.progress()[version.id].unfinished
    assert len(tasks) >= 3
    # The name of a file that a task is to write is taken by a folder.
    (piece,) = read_task(record, version.table_schema, version.id, 1)
    folder = tmp_path / "stash" / record.name / version.directory
    taken = folder / piece.file / "folder"
    taken.mkdir(parents=True)
    assert stash_job.main() == 1
    assert len(record.problems(record.progress())) == 1
    taken.rmdir()
    taken.parent.rmdir()
    assert stash_job.main() == 0
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert (len(files), record.progress()[version.id].unfinished) == (len(tasks), [])
    # A task that is repeated, because its end was not recorded, writes the same file.
    record.own.delete([each.path for each in record.own.list_objects(f"{record.folder}/done")])
    assert stash_job.main() == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
    complete_stash(instance._ports, record)
    assert stash_job.main() == 0
    assert read_stash(spark, request.destination, "numbers").count() == 30
