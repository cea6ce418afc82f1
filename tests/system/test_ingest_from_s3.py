"""A local instance ingests files from S3 with the environment's credentials."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.admin.tables import create_table
from sleeper.datafiles.sources.files import find_source_files
from sleeper.datafiles.sources.table_inference import TableRequest
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.ingest.inference import infer_from_paths
from sleeper.ingest.service import ingest_paths, run_ingest_message, submit_ingest
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.jobs.status import JobState
from sleeper.opening import create_instance, open_instance
from sleeper.query.request import Query
from sleeper.query.service import open_query
from sleeper.storage.bucket import Bucket, open_bucket
from tests.servers.seaweedfs import S3Server

SCHEMA = '{"rowKeyFields":[{"name":"id","type":"StringType"}]}'


@pytest.fixture
def instance(
    tmp_path: Path, s3_server: S3Server, source_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Instance]:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.credentials.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.credentials.secret_access_key)
    monkeypatch.setenv("AWS_REGION", s3_server.region)
    create_instance(tmp_path / "i", "test")
    opened_instance = open_instance(tmp_path / "i")
    create_table(opened_instance, "t", SCHEMA)
    yield opened_instance
    opened_instance.close()


@pytest.fixture
def url(source_bucket: Bucket) -> str:
    key = f"{uuid.uuid4().hex}/rows.csv"
    obstore.put(open_bucket(source_bucket), key, b"id\na\nb\n")
    return f"s3://{source_bucket.name}/{key}"


def ids(instance: Instance) -> list[str]:
    return open_query(instance, "t", Query()).read_all().column(0).to_pylist()


def test_a_url_is_ingested_directly(instance: Instance, url: str) -> None:
    assert ingest_paths(instance, "t", [url]).rows == 2
    assert ids(instance) == ["a", "b"]


def test_a_pattern_names_the_objects_that_match(instance: Instance, source_bucket: Bucket) -> None:
    prefix = uuid.uuid4().hex
    for key in ("a.csv", "b.csv", "c.jsonl", "deep/er/d.csv", "[x].csv"):
        row = b'{"id":"%s"}' if key.endswith(".jsonl") else b"id\n%s\n"
        obstore.put(open_bucket(source_bucket), f"{prefix}/{key}", row % key.encode())
    place = f"s3://{source_bucket.name}/{prefix}"

    def find(pattern: str) -> list[str]:
        files = find_source_files([instance.storage.sources.open(f"{place}/{pattern}")])
        return [str(file).removeprefix(f"{place}/") for file in files]

    assert find("*.csv") == ["[x].csv", "a.csv", "b.csv"]
    assert find("[ab].*") == ["a.csv", "b.csv"]
    assert find("[x].csv") == ["[x].csv"]
    assert find("**/*.csv") == ["[x].csv", "a.csv", "b.csv", "deep/er/d.csv"]
    assert find("*/er/?.csv") == ["deep/er/d.csv"]
    with pytest.raises(InvalidRequestError, match="does not exist"):
        find("*.parquet")
    request = TableRequest(("id",))
    inferred = infer_from_paths(instance, [f"{place}/*.csv", f"{place}/c.jsonl"], request)
    assert (inferred.files, [f.name for f in inferred.schema.fields]) == (4, ["id"])
    assert ingest_paths(instance, "t", [f"{place}/*.csv"]).rows == 3


def test_a_prefix_stands_for_files_of_all_formats_below_it(
    instance: Instance, source_bucket: Bucket
) -> None:
    prefix = f"{uuid.uuid4().hex}/day"
    rows = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": ["p"]}), rows)
    for key, content in {
        "a.csv": b"id\nc\n",
        "deep/b.jsonl": b'{"id":"j"}\n',
        "c.parquet": rows.getvalue().to_pybytes(),
        "readme.md": b"text",
    }.items():
        obstore.put(open_bucket(source_bucket), f"{prefix}/{key}", content)
    obstore.put(open_bucket(source_bucket), f"{prefix}2/a.csv", b"id\nx\n")
    place = f"s3://{source_bucket.name}/{prefix}"
    assert len(instance.storage.sources.find(place)) == 3
    assert ingest_paths(instance, "t", [f"{place}/", f"{place}/c.parquet"]).rows == 4
    assert ids(instance) == ["c", "j", "p", "p"]


def test_a_url_is_sent_unchanged_and_ingested_by_a_worker(instance: Instance, url: str) -> None:
    job_id = submit_ingest(instance, "t", [url.replace("s3://", "s3a://")])
    (message,) = instance.jobs.queue(QueueName.INGEST).receive()
    assert run_ingest_message(instance, message).rows == 2
    job = instance.jobs.tracker.job(instance.tables.index.find("t").id, job_id)
    assert job.state is JobState.COMMITTED


def test_a_bucket_that_does_not_exist_is_unavailable(instance: Instance) -> None:
    with pytest.raises(UnavailableError, match="specified bucket does not exist"):
        ingest_paths(instance, "t", ["s3://another/x.csv"])


def test_a_url_without_a_bucket_is_refused_and_tracked(instance: Instance) -> None:
    with pytest.raises(InvalidRequestError, match="is not an S3 object"):
        ingest_paths(instance, "t", ["s3://"], job_id="bad")
    job = instance.jobs.tracker.job(instance.tables.index.find("t").id, "bad")
    assert job.state is JobState.REJECTED
    assert "is not an S3 object" in job.runs[0].reasons[0]
    assert ids(instance) == []
