"""Bulk imports on real Spark: rows are stored once despite crashes; executor errors are named."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sleeper.bulk_import.run import BulkImportResult, OnStage, ignore_stage
from sleeper.bulk_import.service import bulk_import_paths, run_bulk_import_message
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind
from sleeper.jobs.queue import Message
from sleeper.jobs.status import JobState
from sleeper.spark.cluster import SparkCluster
from sleeper.spark.session import raise_task_errors
from tests.spark.imports import (
    PATIENCE_SECONDS,
    check_stored,
    instance_to_import_into,
    stored_rows,
    write,
)
from tests.spark.session import preloading


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with instance_to_import_into(tmp_path / "instance") as created:
        yield created


def test_rows_are_stored_once_in_presplit_leaves(
    spark: SparkSession, instance: Instance, tmp_path: Path
) -> None:
    source = write(tmp_path / "in", 100_000)
    result = bulk_import_paths(instance, "t", [str(source)], lambda: SparkCluster(spark), "j")
    assert (result.rows, result.number) == (100_000, 3)
    check_stored(instance, 100_000)
    with instance.table("t").state.reading() as state:
        assert len(list(state.partitions.leaves())) == 8
    again = bulk_import_paths(instance, "t", [str(source)], lambda: SparkCluster(spark), "j")
    assert again.done_before
    (job,) = instance.jobs.tracker.recent(JobKind.BULK_IMPORT)
    assert (job.state, job.inputs, len(job.runs)) == (JobState.COMMITTED, 1, 2)
    assert {run.rows_written for run in job.runs} == {100_000, None}


def test_an_invalid_row_is_named_in_the_error(
    spark: SparkSession, instance: Instance, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("k,s,v\na,1,x\nb,two,y\n")
    pq.write_table(
        pa.table({"k": ["a", "b"], "s": [1, 2], "v": ["x", None]}), tmp_path / "a.parquet"
    )
    for name, output in (("a.csv", "row 2: field 's'"), ("a.parquet", "row 2: field 'v'")):
        with pytest.raises(InvalidRequestError, match=output):
            bulk_import_paths(instance, "t", [str(tmp_path / name)], lambda: SparkCluster(spark))
    jobs = instance.jobs.tracker.recent(JobKind.BULK_IMPORT)
    assert [job.state for job in jobs] == [JobState.REJECTED] * 2
    assert "a.csv" in " ".join(reason for job in jobs for reason in job.reasons)


def run_concurrently(*works: Callable[[], BulkImportResult]) -> list[BulkImportResult]:
    """Runs the functions in threads and returns their results."""
    with ThreadPoolExecutor(len(works)) as threads:
        return [item.result() for item in [threads.submit(work) for work in works]]


def test_a_message_that_is_delivered_twice_at_once_counts_once(
    spark: SparkSession, instance: Instance, tmp_path: Path
) -> None:
    body = {"id": "j", "tableName": "t", "files": [str(write(tmp_path / "in", 20_000))]}
    message = Message("m", json.dumps(body), "", 1, instance.clock())

    def deliver() -> BulkImportResult:
        return run_bulk_import_message(instance, message, lambda: SparkCluster(spark))

    results = run_concurrently(deliver, deliver)
    assert sorted(result.done_before for result in results) == [False, True]
    check_stored(instance, 20_000)
    (job,) = instance.jobs.tracker.recent(JobKind.BULK_IMPORT)
    assert [run.state for run in job.runs] == [JobState.COMMITTED] * 2


def test_concurrent_imports_that_split_a_table_both_succeed(
    spark: SparkSession, instance: Instance, tmp_path: Path
) -> None:
    previous = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    source = write(tmp_path / "in", 20_000)

    def work(job_id: str) -> Callable[[], BulkImportResult]:
        cluster = SparkCluster(spark)
        return lambda: bulk_import_paths(instance, "t", [str(source)], lambda: cluster, job_id)

    results = run_concurrently(work("one"), work("two"))
    assert [result.rows for result in results] == [20_000] * 2
    check_stored(instance, 20_000, times=2)
    with instance.table("t").state.reading() as state:
        assert len(list(state.partitions.leaves())) == 8
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == previous


def test_an_import_cancelled_by_spark_fails_and_may_be_repeated(
    spark: SparkSession, instance: Instance, tmp_path: Path
) -> None:
    source = write(tmp_path / "in", 100_000)

    def run(on_stage: OnStage) -> BulkImportResult:
        paths = [str(source)]
        return bulk_import_paths(instance, "t", paths, lambda: SparkCluster(spark), "j", on_stage)

    failed = threading.Event()

    def cancel_jobs() -> None:
        while not failed.wait(0.01):
            if spark.sparkContext.statusTracker().getActiveJobsIds():
                spark.sparkContext.cancelAllJobs()

    def cancel(stage: str) -> None:
        if stage == "write":
            canceller.start()

    canceller = threading.Thread(target=cancel_jobs)
    try:
        with pytest.raises(UnavailableError, match=r"Spark failed: .*cancelled"):
            run(cancel)
    finally:
        failed.set()
        canceller.join()
    (job,) = instance.jobs.tracker.recent(JobKind.BULK_IMPORT)
    assert (job.state, stored_rows(instance)) == (JobState.FAILED, 0)
    assert run(ignore_stage).rows == 100_000


def test_errors_of_spark_itself_do_not_reject_a_job(spark: SparkSession) -> None:
    with pytest.raises(UnavailableError, match="Spark failed"), raise_task_errors():
        spark.sql("SELECT * FROM nowhere").collect()


@pytest.mark.timeout(3 * PATIENCE_SECONDS)
def test_a_submitted_driver_runs_the_job_of_a_message(instance: Instance, tmp_path: Path) -> None:
    source = write(tmp_path / "in", 1000, files=1)
    job = {"id": "j", "tableName": "t", "files": [str(source)], "sparkConf": {}}
    (tmp_path / "job.json").write_text(json.dumps(job))

    def submit(job: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "sleeper.spark.bulk_import_job", instance.where, job]
        environment = preloading(os.environ)
        results = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        return results.returncode, results.stderr

    code, output = submit(str(tmp_path / "job.json"))
    assert (code, "bulk import job j: 1,000 rows" in output) == (0, True), output
    check_stored(instance, 1000)
    code, output = submit(json.dumps(job))
    assert (code, "bulk import job j: done before" in output) == (0, True), output
    code, output = submit('{"tableName":"t","files":["x"]}')
    assert (code, output.strip()) == (1, 'error: the bulk import job has no "id"')
