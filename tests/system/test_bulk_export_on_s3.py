"""Bulk exports of an AWS instance, to a bucket of a real S3 server."""

import io
import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import sleeper
from sleeper.bulk_export.properties import BULK_EXPORT_BUCKET
from sleeper.bulk_export.service import run_bulk_export_message
from sleeper.cli.main import app
from sleeper.jobs.queue import Message
from tests.servers.aws_instance import AwsInstance, AwsServers, aws_instance

SCHEMA = {"rowKeyFields": [{"name": "n", "type": "LongType"}]}


@pytest.fixture
def aws(aws_servers: AwsServers, tmp_path: Path) -> Iterator[AwsInstance]:
    bucket = f"exports-{uuid.uuid4().hex}"
    with aws_instance(aws_servers, tmp_path, {BULK_EXPORT_BUCKET.name: bucket}) as instance:
        instance.s3().create_bucket(Bucket=bucket)
        yield instance


@pytest.fixture
def table(aws: AwsInstance) -> Iterator[sleeper.Table]:
    with sleeper.open_instance(aws.where) as instance:
        table = instance.create_table("t", SCHEMA, split_points=[10, 20])
        table.ingest(numbers(range(30)))
        yield table


def numbers(ids: range) -> pa.Table:
    return pa.table({"n": ids})


def read_export(aws: AwsInstance, location: str) -> tuple[list[list[int]], set[str]]:
    """Returns the numbers in each exported file, and the names of other objects."""
    bucket, _, prefix = location.removeprefix("s3://").partition("/")
    files, others = [], set()
    for result in aws.s3().list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]:
        if result["Key"].endswith(".parquet"):
            body = aws.s3().get_object(Bucket=bucket, Key=result["Key"])["Body"].read()
            files.append(pq.read_table(io.BytesIO(body)).column("n").to_pylist())
        else:
            others.add(result["Key"].rsplit("/", 1)[-1])
    return sorted(files), others


THIRDS = [list(range(first, first + 10)) for first in (0, 10, 20)]


def test_a_message_exports_to_the_bucket_for_exports(
    aws: AwsInstance, table: sleeper.Table
) -> None:
    ports = table._instance
    body = json.dumps({"exportId": "e1", "tableName": "t"})
    result = run_bulk_export_message(ports, Message("m", body, "", 1, ports.clock()))
    bucket, ref = ports.properties().get(BULK_EXPORT_BUCKET), ports.table("t").ref
    assert result.location == f"s3://{bucket}/{ref.id}/e1"
    assert read_export(aws, result.location) == (THIRDS, {"_plan.json", "_SUCCESS"})
    table.ingest(numbers(range(30, 40)))
    again = run_bulk_export_message(ports, Message("m", body, "", 2, ports.clock()))
    assert (again.done_before, again.rows) == (True, 30)
    assert read_export(aws, result.location)[0] == THIRDS


def test_a_command_exports_to_any_place_in_s3(aws: AwsInstance, table: sleeper.Table) -> None:
    place = f"s3://{aws.source_bucket}/out/today"
    command = ["--instance", aws.where, "bulk-export", "t", "--export-id", "e1"]
    for output in ("30 rows in 3 files", "is already complete"):
        result = CliRunner().invoke(app, [*command, "--output", f"{place}/"])
        assert (result.exit_code, output in result.stderr) == (0, True), result.stderr
        assert result.stdout.strip() == f"{place}/{table._instance.table('t').ref.id}/e1"
    assert read_export(aws, result.stdout.strip()) == (THIRDS, {"_plan.json", "_SUCCESS"})


def test_a_bucket_without_a_prefix_is_refused(aws: AwsInstance, table: sleeper.Table) -> None:
    command = ["--instance", aws.where, "bulk-export", "t", "--output"]
    result = CliRunner().invoke(app, [*command, f"s3://{aws.source_bucket}"])
    assert result.exit_code == 1
    assert "is not an S3 object (expected s3://bucket/key)" in result.stderr
