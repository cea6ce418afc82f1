"""Spark and an instance whose data is on S3: a real S3 server, and Spark's own Python."""

import gzip
import io
import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import sleeper
from sleeper.bulk_import.service import bulk_import_paths
from sleeper.errors import InvalidRequestError
from sleeper.jobs.event import JobKind
from sleeper.jobs.status import JobState
from sleeper.properties.deployed import BULK_IMPORT_BUCKET
from sleeper.properties.table import BULK_IMPORT_LEAF_BYTES_MIN, BULK_IMPORT_LEAVES_MIN
from sleeper.retries import RETRY_VARIABLE
from sleeper.spark import bulk_import_job
from sleeper.spark.cluster import SparkCluster
from tests.servers.aws_instance import AwsInstance
from tests.spark.tables import NUMBERS, ingest_numbers, loaded, numbers_in, source_options


@pytest.fixture
def instance(aws: AwsInstance) -> Iterator[sleeper.Instance]:
    with sleeper.open_instance(aws.where) as opened_instance:
        yield opened_instance


@pytest.fixture
def table(instance: sleeper.Instance) -> sleeper.Table:
    """One that imports split into four leaves."""
    properties = {BULK_IMPORT_LEAVES_MIN.name: "4", BULK_IMPORT_LEAF_BYTES_MIN.name: "0"}
    return instance.create_table("t", NUMBERS, properties)


class Source:
    """A folder of the bucket that files are taken in from."""

    def __init__(self, aws: AwsInstance) -> None:
        self.folder = f"s3://{aws.source_bucket}/{uuid.uuid4().hex}"
        self._aws = aws

    def put(self, name: str, content: bytes) -> str:
        bucket, _, key = f"{self.folder}/{name}".removeprefix("s3://").partition("/")
        self._aws.s3().put_object(Bucket=bucket, Key=key, Body=content)
        return f"s3://{bucket}/{key}"

    def put_parquet(self, name: str, numbers: range) -> str:
        file = io.BytesIO()
        pq.write_table(pa.table({"n": numbers, "text": [f"text {n}" for n in numbers]}), file)
        return self.put(name, file.getvalue())


@pytest.fixture
def source(aws: AwsInstance) -> Source:
    return Source(aws)


def data_objects(aws: AwsInstance, table: sleeper.Table) -> list[str]:
    """Names of the table's data files in the instance's bucket."""
    ref = table._instance.table(table.name).ref
    bucket = f"sleeper-{aws.id}-table-data-000000000000"
    results = aws.s3().list_objects_v2(Bucket=bucket, Prefix=f"{ref.id}/data/").get("Contents", [])
    return [item["Key"] for item in results if item["Key"].endswith(".parquet")]


def test_files_of_every_format_are_imported_by_path_and_below_a_prefix(
    spark: SparkSession, aws: AwsInstance, table: sleeper.Table, source: Source
) -> None:
    for name, numbers in (("dir/a.parquet", range(2000)), ("dir/b/c.parquet", range(2000, 4000))):
        source.put_parquet(name, numbers)
    source.put("dir/_SUCCESS", b"")
    rows = "".join(f"text {n},{n}\n" for n in range(4000, 4100))
    csv = source.put("rows.csv.gz", gzip.compress(f"text,n\n{rows}".encode()))
    rows = "".join(f'{{"n":{n},"text":"text {n}"}}\n' for n in range(4100, 4200))
    lines = source.put("rows.jsonl", rows.encode())
    paths = [f"{source.folder}/dir/", csv, lines.replace("s3://", "s3a://")]
    ports = table._instance
    result = bulk_import_paths(ports, "t", paths, lambda: SparkCluster(spark), "j")
    assert result.rows == 4200
    actual = table.query().to_arrow()
    assert actual.column("n").to_pylist() == [*range(4200)]
    assert actual.column("text").to_pylist() == [f"text {n}" for n in range(4200)]
    with ports.table("t").state.reading() as state:
        assert len(list(state.partitions.leaves())) == 4
    assert len(data_objects(aws, table)) == result.files
    assert bulk_import_paths(ports, "t", paths, lambda: SparkCluster(spark), "j").done_before


def test_an_invalid_file_is_named_by_its_url(
    spark: SparkSession, aws: AwsInstance, table: sleeper.Table, source: Source
) -> None:
    good = source.put_parquet("good.parquet", range(10))
    faults = {
        source.put("torn.parquet", b"PAR1 and then"): "torn.parquet: not a readable Parquet file",
        source.put("bad.csv", b"n,text\n1,x\ntwo,y\n"): "bad.csv, row 2: field 'n'",
        f"{source.folder}/missing.csv": "missing.csv does not exist, nor any .parquet file",
        "s3://another/a.parquet": "bucket another is not an allowed source",
    }
    ports = table._instance
    for path, output in faults.items():
        with pytest.raises(InvalidRequestError, match=output):
            bulk_import_paths(ports, "t", [good, path], lambda: SparkCluster(spark))
    states = [job.state for job in ports.jobs.tracker.recent(JobKind.BULK_IMPORT)]
    assert states == [JobState.REJECTED] * len(faults)
    assert (numbers_in(table), data_objects(aws, table)) == ([], [])


def test_a_driver_finds_its_job_in_s3(
    spark: SparkSession,
    aws: AwsInstance,
    table: sleeper.Table,
    source: Source,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source.put_parquet("in/a.parquet", range(1000))
    path = f"{source.folder}/in".removeprefix("s3://")  # as other clients name it
    job = json.dumps({"id": "j", "tableName": "t", "files": [path]})
    bucket = table._instance.properties().get(BULK_IMPORT_BUCKET)
    aws.s3().put_object(Bucket=bucket, Key="jobs/1.json", Body=job.encode())
    monkeypatch.setenv(RETRY_VARIABLE, "20")
    # The program runs in this process, on its Spark. `test_deployed_queries` submits it.
    monkeypatch.setattr(bulk_import_job, "stop_session", lambda _: None)
    arguments = [aws.where, f"s3://{bucket}/jobs/1.json", "--run-id", "r"]
    monkeypatch.setattr(sys, "argv", ["bulk_import_job", *arguments])
    status = bulk_import_job.main()
    output = capsys.readouterr().err
    assert (status, "bulk import job j: 1,000 rows" in output) == (0, True), output
    assert numbers_in(table) == [*range(1000)]
    (job_seen,) = table._instance.jobs.tracker.recent(JobKind.BULK_IMPORT)
    assert [(run.run_id, run.state) for run in job_seen.runs] == [("r", JobState.COMMITTED)]


def test_a_table_is_read_in_partitions_and_by_key(
    spark: SparkSession, instance: sleeper.Instance
) -> None:
    table = instance.create_table("t", NUMBERS, split_points=[10, 20])
    ingest_numbers(table, range(30))
    frame = loaded(spark, table, partitionBytes=1)
    assert frame.rdd.getNumPartitions() == 3
    version = table.version
    ingest_numbers(table, range(30, 40))
    assert sorted(row["n"] for row in frame.collect()) == [*range(30)]
    assert loaded(spark, table).filter("n >= 25").count() == 15
    assert loaded(spark, table, asOf=version).count() == 30
    some = loaded(spark, table, keys="[7]", range="[18, 22]", columns="n").collect()
    assert sorted(row["n"] for row in some) == [7, 18, 19, 20, 21]


def test_a_dataframe_is_written_once(
    spark: SparkSession, aws: AwsInstance, instance: sleeper.Instance
) -> None:
    table = instance.create_table("t", NUMBERS, split_points=[500])
    frame = spark.range(1000, numPartitions=3).selectExpr(
        "concat('text ', id) AS text", "999 - id AS n"
    )
    for _ in range(2):
        options = source_options(table, jobId="j")
        frame.write.format("sleeper").mode("append").options(**options).save()
    assert numbers_in(table) == [*range(1000)]
    assert len(data_objects(aws, table)) == 3


def test_a_table_is_followed_into_another(
    spark: SparkSession, instance: sleeper.Instance, tmp_path: Path
) -> None:
    one = instance.create_table("one", NUMBERS, split_points=[50])
    other = instance.create_table("other", NUMBERS)
    for first in (0, 30):
        ingest_numbers(one, range(first, first + 30))
        rows = (
            spark.readStream.format("sleeper").options(**source_options(one, follower="f")).load()
        )
        sink = rows.writeStream.format("sleeper").options(**source_options(other))
        sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = sink.trigger(availableNow=True).start()
        query.awaitTermination()
        assert numbers_in(other) == [*range(first + 30)]
