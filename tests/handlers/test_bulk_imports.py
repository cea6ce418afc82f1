"""Bulk imports of a platform's queue: accepted, run, looked after to their end."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sleeper.aws.sources import AwsSources
from sleeper.bulk_import.service import run_bulk_import_message
from sleeper.errors import InvalidRequestError, NotFoundError, UnavailableError
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, JobRunRef, JobStep
from sleeper.jobs.queue import Message, QueueName
from sleeper.jobs.spark_platform import RunOutcome, RunState
from sleeper.jobs.status import JobState, JobStatus
from sleeper.tables import TableId, TableRef, mark_table_deleting
from sleeper.workers import lambda_function
from tests.handlers import functions
from tests.handlers.conftest import Lambda, batch_of, failed, make_table
from tests.handlers.fake_platform import FakePlatform
from tests.ports import with_ports

QUEUE = QueueName.BULK_IMPORT_EMR_SERVERLESS


@pytest.fixture
def platform(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> FakePlatform:
    instance.change_properties({"sleeper.ingest.source.bucket": "b,bucket"})
    fake = FakePlatform()
    # A local instance has no source buckets: its users read what their credentials allow.
    sources = AwsSources(instance.storage.root, instance.properties)
    instance_with_platform = with_ports(
        instance,
        jobs={"spark_platform": lambda name: fake},
        storage={"sources": sources},
    )
    monkeypatch.setattr(lambda_function, "_opened", lambda where: instance_with_platform)
    monkeypatch.setenv("SLEEPER_BULK_IMPORT_PLATFORM", "emr_serverless")
    return fake


@pytest.fixture
def table(instance: Instance) -> TableRef:
    return make_table(instance, "t")


def send(aws: Lambda, **members: Any) -> None:
    """Sends a message and runs the queue's function."""
    body = {"id": "j", "tableName": "t", "files": ["bucket/dir/file.parquet"]} | members
    aws.instance.jobs.queue(QUEUE).send(json.dumps(body))
    aws.take(QUEUE, functions.start_bulk_import)


def deliver(aws: Lambda, body: str, message_id: str = "m1") -> list[str]:
    """Delivers the same message on each call; returns the failed ids."""
    message = Message(message_id, body, "receipt", 1, aws.instance.clock())
    return failed(aws.call(functions.start_bulk_import, batch_of([message])))


def watch(aws: Lambda) -> dict[str, int]:
    return aws.call(functions.watch_bulk_imports)


def job(aws: Lambda, table: TableRef, job_id: str = "j") -> JobStatus:
    return aws.instance.jobs.tracker.job(table.id, job_id)


def only_job(platform: FakePlatform) -> Any:
    (result,) = platform.runs.values()
    return result


def body(**members: Any) -> str:
    return json.dumps({"id": "j", "tableName": "t", "files": ["bucket/f.parquet"]} | members)


def test_a_message_is_submitted_and_its_job_is_accepted(
    aws: Lambda, platform: FakePlatform, table: TableRef
) -> None:
    assert deliver(aws, body(id=None, files=["b/one", "s3a://b/two"])) == []
    job_status = job(aws, table, "m1")
    (run,) = job_status.runs
    (reference,) = platform.runs
    assert (job_status.state, job_status.kind, job_status.inputs) == (
        JobState.ACCEPTED,
        JobKind.BULK_IMPORT,
        2,
    )
    assert (run.platform_run, run.task_id) == (reference, None)
    request_ = only_job(platform)
    where, original, *original_function = request_.arguments
    assert where == aws.instance.where
    assert json.loads(Path(original).read_text())["id"] == "m1"
    assert original_function[original_function.index("--run-id") + 1] == run.run_id


def test_a_message_of_an_existing_client_is_accepted(
    aws: Lambda, platform: FakePlatform, table: TableRef
) -> None:
    """With `platformSpec`, `sparkConf` and `className`, and a table's id for its name."""
    send(
        aws,
        tableName=None,
        tableId=table.id,
        className="sleeper.bulkimport.runner.dataframelocalsort.BulkImportDataframeLocalSortDriver",
        platformSpec={"sleeper.table.bulk.import.emr.executor.max.capacity": "5"},
        sparkConf={
            "spark.executor.cores": "8",
            "sleeper.bulk.import.emr.serverless.spark.driver.memory": "12G",
        },
    )
    request_ = only_job(platform)
    assert request_.platform_spec == {"sleeper.table.bulk.import.emr.executor.max.capacity": "5"}
    assert request_.spark_conf["spark.executor.cores"] == "8"
    assert request_.spark_conf["spark.driver.memory"] == "12G"
    # Two times half a gibibyte for each processor, and one for Python.
    assert request_.spark_conf["spark.executor.memoryOverhead"] == "9216m"


def test_unset_properties_have_their_defaults(
    aws: Lambda, platform: FakePlatform, table: TableRef
) -> None:
    name = "sleeper.bulk.import.emr.serverless.spark.executor.instances"
    aws.instance.change_properties({name: "7"})
    send(aws)
    request_ = only_job(platform).spark_conf
    assert request_["spark.dynamicAllocation.maxExecutors"] == "7"
    assert request_["spark.executor.memory"] == "8G"


def test_a_redelivered_message_submits_no_job(
    aws: Lambda, platform: FakePlatform, table: TableRef
) -> None:
    for _ in range(3):
        assert deliver(aws, body()) == []
    assert platform.request_count == len(platform.runs) == 1
    # The job sent again while it is under way.
    assert deliver(aws, body(), "m2") == []
    assert platform.request_count == 1


def test_a_starter_killed_before_recording_its_submission_starts_the_same_run(
    aws: Lambda, platform: FakePlatform, table: TableRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_instance = lambda_function._opened(None)

    class Broken:
        def job(self, table_id: TableId, job_id: str) -> JobStatus:
            raise NotFoundError("none")

        def record(self, *events: object) -> None:
            raise UnavailableError("no tracker")

    monkeypatch.setattr(
        lambda_function,
        "_opened",
        lambda where: with_ports(opened_instance, jobs={"tracker": Broken()}),
    )
    assert deliver(aws, body()) == ["m1"]
    monkeypatch.setattr(lambda_function, "_opened", lambda where: opened_instance)
    assert deliver(aws, body()) == []
    assert platform.request_count == 2
    assert len(platform.runs) == 1
    assert job(aws, table).state is JobState.ACCEPTED


def test_an_unresponsive_platform_returns_the_message(
    aws: Lambda, platform: FakePlatform, table: TableRef
) -> None:
    platform.refuses = UnavailableError("throttled")
    assert deliver(aws, body()) == ["m1"]
    platform.refuses = None
    assert deliver(aws, body()) == []
    assert job(aws, table).state is JobState.ACCEPTED


POISON = {
    "": "not JSON",
    "[]": "expected an object",
    '{"tableName":"t"}': '"files"',
    body(files=["s3://b/f", "s3://other/f"]): "bucket other is not an allowed source",
    body(sparkConf={"spark.executor.cores": [4]}): "sparkConf['spark.executor.cores']",
    body(platformSpec=[]): '"platformSpec" is [] (expected an object)',
    body(className=[1]): '"className" is [1] (expected text)',
    body(sparkConf={"spark.jars": "s3://b/evil.jar"}): "may not set 'spark.jars'",
    body(sparkConf={"spark.driver.extraJavaOptions": "-Dx"}): "only settings that size a job",
    body(sparkConf={"spark.executorEnv.PYTHONPATH": "x"}): "only settings that size a job",
    body(sparkConf={"spark.yarn.dist.files": "x"}): "only settings that size a job",
    body(sparkConf={"spark.submit.pyFiles": "x"}): "only settings that size a job",
    body(sparkConf={"spark.pyspark.python": "x"}): "only settings that size a job",
    body(sparkConf={"other": "x"}): "only settings that size a job",
    body(sparkConf={"spark.executor.memory": "1G --conf spark.jars=x"}): "not a number, size",
    body(sparkConf={"spark.executor.cores": "many"}): "'many' is not a number",
}


@pytest.mark.parametrize("text", POISON)
def test_an_invalid_job_is_rejected_with_its_reason(
    aws: Lambda, platform: FakePlatform, table: TableRef, text: str
) -> None:
    assert deliver(aws, text) == []
    (result,) = aws.instance.jobs.tracker.recent(JobKind.BULK_IMPORT)
    assert result.state is JobState.REJECTED
    assert POISON[text] in result.reasons[0]
    assert platform.request_count == 0


def test_a_permanent_refusal_of_the_platform_rejects_the_job(
    aws: Lambda, platform: FakePlatform, table: TableRef
) -> None:
    platform.refuses = InvalidRequestError("executors of 1000 cores")
    assert deliver(aws, body()) == []
    assert job(aws, table).reasons == ("executors of 1000 cores",)


def test_a_job_without_a_table_is_rejected_and_the_batch_continues(
    aws: Lambda, platform: FakePlatform, table: TableRef
) -> None:
    queue = aws.instance.jobs.queue(QUEUE)
    queue.send_all([body(id="lost", tableName="gone"), body()])
    assert aws.take(QUEUE, functions.start_bulk_import) == 2
    lost = aws.instance.jobs.tracker.job(TableId("gone"), "lost")
    assert lost.state is JobState.REJECTED
    assert "gone" in lost.reasons[0]
    assert job(aws, table).state is JobState.ACCEPTED


def test_a_run_is_watched_until_its_end_is_recorded(
    aws: Lambda, platform: FakePlatform, table: TableRef
) -> None:
    send(aws)
    assert watch(aws) == {"running": 1, "reported": 0, "recorded": 0}
    platform.end(RunState.FAILED, "FAILED: out of capacity")
    assert watch(aws) == {"running": 0, "reported": 0, "recorded": 1}
    job_status = job(aws, table)
    assert job_status.state is JobState.FAILED
    assert "out of capacity" in job_status.reasons[0]
    assert watch(aws) == {"running": 0, "reported": 0, "recorded": 0}


def test_a_run_unknown_to_the_platform_has_failed(
    aws: Lambda, platform: FakePlatform, table: TableRef
) -> None:
    send(aws)
    platform.forgets = True
    assert watch(aws)["recorded"] == 1
    assert "unknown to the platform" in job(aws, table).reasons[0]


def test_a_failed_job_that_is_sent_again_is_a_new_run(
    aws: Lambda, platform: FakePlatform, table: TableRef
) -> None:
    send(aws)
    platform.end(RunState.FAILED)
    watch(aws)
    send(aws)
    assert len(platform.runs) == 2
    job_status = job(aws, table)
    assert job_status.state is JobState.ACCEPTED
    assert [run.state for run in job_status.runs] == [JobState.FAILED, JobState.ACCEPTED]


class Deaf:
    """A tracker that fails to record anything."""

    def record(self, *events: object) -> None:
        pass


def test_unrecorded_commits_are_found_in_the_log(
    aws: Lambda, platform: FakePlatform, table: TableRef
) -> None:
    send(aws)
    rows = pa.table({"k": [1], "v": ["v"]})
    ingest_rows(with_ports(aws.instance, jobs={"tracker": Deaf()}), "t", rows.to_batches(), "j")
    platform.end(RunState.FAILED, "killed after its commit")
    assert watch(aws)["recorded"] == 1
    assert job(aws, table).state is JobState.COMMITTED


def _drive(aws: Lambda, platform: FakePlatform, error: Exception) -> None:
    """The driver of the one run, which fails before it has a cluster."""
    request_ = only_job(platform)
    text = Path(request_.arguments[1]).read_text()
    message = Message("x", text, "", 1, aws.instance.clock())

    def no_cluster() -> Any:
        raise error

    with pytest.raises(type(error)):
        run_bulk_import_message(aws.instance, message, no_cluster, request_.run_id)


def test_the_failure_reason_of_a_driver_is_recorded_in_the_accepted_run(
    aws: Lambda, platform: FakePlatform, table: TableRef
) -> None:
    send(aws)
    _drive(aws, platform, UnavailableError("Spark gave up"))
    (run,) = job(aws, table).runs
    assert (run.state, run.reasons) == (JobState.FAILED, ("Spark gave up",))
    assert run.started_ms is not None
    assert run.platform_run is not None
    assert run.task_id is not None
    # The platform has less to say of it.
    platform.end(RunState.FAILED, "exit status 1")
    assert watch(aws) == {"running": 0, "reported": 1, "recorded": 0}
    assert job(aws, table).reasons == ("Spark gave up",)


def test_a_driver_killed_after_its_start_has_failed(
    aws: Lambda, platform: FakePlatform, table: TableRef
) -> None:
    send(aws)
    request_ = only_job(platform)
    ref = JobRunRef(table.id, "j", JobKind.BULK_IMPORT, request_.run_id, "task")
    aws.instance.jobs.tracker.record(ref.event(JobStep.STARTED, aws.instance.clock()))
    assert job(aws, table).state is JobState.RUNNING
    platform.end(RunState.FAILED, "out of memory")
    assert watch(aws)["recorded"] == 1
    assert "out of memory" in job(aws, table).reasons[0]


def test_a_run_of_a_deleted_table_is_not_watched_for_ever(
    aws: Lambda, platform: FakePlatform, table: TableRef
) -> None:
    send(aws)
    mark_table_deleting(aws.instance.tables.index, table.name)
    aws.instance.tables.index.remove(table.id)
    platform.end(RunState.SUCCEEDED)
    assert watch(aws)["recorded"] == 1
    assert job(aws, table).state is JobState.FAILED


def test_a_run_that_cannot_be_looked_up_does_not_block_others(
    aws: Lambda, platform: FakePlatform, table: TableRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(aws, id="bad")
    send(aws, id="good")
    bad = next(r for r, requested in platform.runs.items() if requested.job_id == "bad")
    platform.end(RunState.SUCCEEDED)
    original = platform.outcome

    def outcome(reference: str) -> RunOutcome:
        if reference == bad:
            raise UnavailableError("throttled")
        return original(reference)

    monkeypatch.setattr(platform, "outcome", outcome)
    assert watch(aws) == {"running": 1, "reported": 0, "recorded": 1}
    assert job(aws, table, "good").state is JobState.FAILED
