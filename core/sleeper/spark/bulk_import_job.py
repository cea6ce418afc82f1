"""The driver of a bulk import: `python -m sleeper.spark.bulk_import_job INSTANCE JOB`.

EMR, EMR Serverless and EKS start it with spark-submit, whose settings the session takes on.
JOB is a message (docs/formats.md, "Bulk import messages") or its place: a path, or s3://bucket/key
in a bucket that the instance may read. A repeated run under the job's id changes nothing.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from sleeper.bulk_import.run import BulkImportResult, Cluster, OnStage
from sleeper.bulk_import.service import bulk_import_paths, run_bulk_import_message
from sleeper.bulk_import.start import parse_spark_request
from sleeper.errors import InvalidRequestError, classify_error
from sleeper.instance import Instance
from sleeper.jobs.queue import Message
from sleeper.properties.deployed import BULK_IMPORT_BUCKET
from sleeper.spark.cluster import SparkCluster
from sleeper.spark.driver import run_driver
from sleeper.spark.session import open_submitted_session, start_session, stop_session
from sleeper.spark.settings import SparkSettings
from sleeper.storage.bucket import is_s3_url
from sleeper.storage.bucket_folder import s3_file

_APP_NAME = "sleeper bulk import"


def import_on(
    spark: SparkSettings,
    instance: Instance,
    table_name: str,
    paths: Sequence[str],
    job_id: str | None,
    on_stage: OnStage,
) -> BulkImportResult:
    """Imports files now, on a session of Spark that starts only if there are files to import."""
    with ExitStack() as stack:

        def start() -> Cluster:
            folder = instance.storage.spill_folder() / "spark"
            session = start_session(_APP_NAME, spark, folder, [instance.storage.root])
            return SparkCluster(stack.enter_context(session))

        return bulk_import_paths(instance, table_name, paths, start, job_id, on_stage)


def run_message(
    instance: Instance, body: str, sent_ms: int, run_id: str | None = None
) -> BulkImportResult:
    """Runs a message's job on the Spark of spark-submit."""
    job_id = _read_job_id(body)
    parse_spark_request(body)
    message = Message(job_id, body, "", 1, sent_ms)
    with ExitStack() as stack:

        def start() -> Cluster:
            session = open_submitted_session(f"{_APP_NAME} {job_id}")
            stack.callback(stop_session, session)
            return SparkCluster(session)

        return run_bulk_import_message(instance, message, start, run_id)


def _read_job_id(body: str) -> str:
    """Returns the job's id, without which a restarted driver would import the files twice."""
    try:
        raw = json.loads(body)
    except ValueError as error:
        raise InvalidRequestError(f"the bulk import job is not JSON: {error}") from error
    if not isinstance(raw, dict) or not isinstance(raw.get("id"), str) or not raw["id"]:
        raise InvalidRequestError('the bulk import job has no "id"')
    return str(raw["id"])


def _read_body(instance: Instance, job: str) -> str:
    if job.lstrip().startswith("{"):
        return job
    if not is_s3_url(job):
        try:
            return Path(job).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise classify_error(
                error, f"cannot read job file {job}: {error}", InvalidRequestError
            ) from error
    properties = instance.properties()
    buckets = instance.storage.sources.buckets()
    jobs_bucket = properties.get(BULK_IMPORT_BUCKET)
    if jobs_bucket and buckets:
        buckets = (*buckets, replace(buckets[0], name=jobs_bucket, prefix=""))
    with s3_file(job, buckets).open_stream() as stream:
        return stream.read().decode()


def main() -> int:
    """Returns the exit status of `run_driver`."""
    parser = argparse.ArgumentParser("sleeper.spark.bulk_import_job", description=__doc__)
    parser.add_argument("instance", help="a folder, or aws:INSTANCE_ID")
    parser.add_argument("job", help="the message, or its path")
    parser.add_argument(
        "--sent-ms", type=int, help="the time at which the message was sent, since the epoch"
    )
    parser.add_argument("--run-id", help="the run that was accepted, for the job tracker")
    arguments = parser.parse_args()
    return run_driver(arguments.instance, lambda instance: _run(instance, arguments))


def _run(instance: Instance, arguments: argparse.Namespace) -> str:
    sent_ms = arguments.sent_ms or time.time_ns() // 1_000_000
    body = _read_body(instance, arguments.job)
    result = run_message(instance, body, sent_ms, arguments.run_id)
    outcome = "done before" if result.done_before else f"{result.rows:,} rows"
    return f"bulk import job {result.job_id}: {outcome}"


if __name__ == "__main__":
    sys.exit(main())
