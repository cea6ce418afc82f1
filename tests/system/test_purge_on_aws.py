"""A purge of an instance whose objects are on an S3 server and whose log is in DynamoDB."""

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

import sleeper
from sleeper.aws.clients import aws_client, describe_old_versions
from sleeper.aws.config_bucket import deployed_value
from sleeper.committer import commit_messages
from sleeper.instance import Instance
from sleeper.jobs.event import new_task_id
from sleeper.jobs.queue import QueueName
from sleeper.opening import open_instance
from sleeper.properties.deployed import DATA_BUCKET, TRANSACTION_LOG_TABLE
from sleeper.purging.report import ObjectState
from sleeper.purging.service import purge_table
from sleeper.workers.worker import Worker
from tests.remnants import find_remnants
from tests.servers.aws_instance import AwsInstance

SCHEMA = {
    "rowKeyFields": [{"name": "key", "type": "StringType"}],
    "valueFields": [{"name": "value", "type": "StringType"}],
}
PERSON, SECRET = "key-of-the-person", "secret-of-the-person"


@pytest.fixture
def instance(deployed_instance: AwsInstance) -> Iterator[Instance]:
    opened = open_instance(deployed_instance.where)
    yield opened
    opened.close()


def run_jobs(instance: Instance) -> None:
    """Runs the queued jobs, as a task does, and commits their results, as the committer does."""
    worker = Worker(instance, new_task_id(), threading.Event())
    while worker.run_one():
        pass
    commits = instance.jobs.queue(QueueName.COMMITS)
    while messages := commits.receive(10):
        assert commit_messages(instance, messages).failed == []
        for message in messages:
            commits.delete(message.receipt)


def remnants(deployed: AwsInstance, instance: Instance, value: str) -> list[str]:
    """Returns the objects of the data bucket and the items of the log that hold the value."""
    s3, bucket = deployed.s3(), instance.properties().get(DATA_BUCKET)
    keys = [each["Key"] for each in s3.list_objects_v2(Bucket=bucket).get("Contents", ())]
    objects = [(key, s3.get_object(Bucket=bucket, Key=key)["Body"].read()) for key in keys]
    log = aws_client("dynamodb").scan(TableName=instance.properties().get(TRANSACTION_LOG_TABLE))
    bodies = [(i["item"]["S"], bytes(i["body"]["B"])) for i in log["Items"] if "body" in i]
    return find_remnants([*objects, *bodies], value)


def test_a_purged_row_is_in_no_object_of_the_bucket_and_no_item_of_the_log(
    deployed_instance: AwsInstance, instance: Instance
) -> None:
    face = sleeper.Instance(instance)
    settings = {"sleeper.table.gc.delay.minutes": "0"}
    table = face.create_table("rows", SCHEMA, settings, ["m"])
    for keys in (["a", PERSON, "z"], [PERSON, "y"]):
        table.ingest(pa.table({"key": keys, "value": [SECRET] * len(keys)}))
    table.delete(keys=[[PERSON]])
    instance.table("rows").state.save_snapshot()
    assert len(remnants(deployed_instance, instance, PERSON)) > 4
    report = purge_table(instance, "rows")
    waiting = {o.reason for o in report.objects if o.state is ObjectState.KEPT}
    assert all("compaction job" in str(reason) for reason in waiting)
    assert len(waiting) == 2
    seen = []

    def work(seconds: float) -> None:
        seen.append(seconds)
        run_jobs(instance)

    report = purge_table(instance, "rows", wait=True, sleep=work)
    assert report.is_complete
    assert seen
    assert remnants(deployed_instance, instance, PERSON) == []
    assert table.query().to_arrow()["key"].to_pylist() == ["a", "y", "z"]
    remaining = {o.object for o in report.objects if o.state is ObjectState.REMAINS}
    assert "copies of the state in functions and tasks" in remaining
    assert "old versions of deleted objects" not in remaining


def test_a_versioned_bucket_is_named_because_it_keeps_old_versions(
    deployed_instance: AwsInstance, instance: Instance
) -> None:
    bucket = deployed_value(instance.properties(), DATA_BUCKET)
    assert describe_old_versions(bucket) is None
    deployed_instance.s3().put_bucket_versioning(
        Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    assert f"bucket {bucket} keeps old versions" in str(describe_old_versions(bucket))
    face = sleeper.Instance(instance)
    face.create_table("rows", SCHEMA)
    report = face.table("rows").purge()
    remaining = {o.object: o.reason for o in report.objects if o.state is ObjectState.REMAINS}
    assert "until its lifecycle rule deletes them" in str(
        remaining["old versions of deleted objects"]
    )
    assert "it is not known" in str(describe_old_versions(f"{bucket}-missing"))
