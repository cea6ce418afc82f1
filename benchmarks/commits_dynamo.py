"""Commits through the committer's handler, with log and tracker on a DynamoDB server."""

import uuid
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from benchmarks.dynamo import dynamo_instance
from benchmarks.measuring import Task, Watch, run_by_turns
from benchmarks.result import Aim, Result, check, figure
from benchmarks.schema import SCHEMA
from benchmarks.settings import Settings
from sleeper.admin.tables import create_table
from sleeper.clock import system_clock
from sleeper.files import DataFile, new_data_path
from sleeper.jobs.event import JobKind, JobRunRef, new_run_id
from sleeper.partitions.partition import ROOT_PARTITION_ID
from sleeper.schema.model import schema_to_json
from sleeper.statestore.commit_message import create_commit_message
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.tables import TableRef

_COMMITS = 3_000
_TABLES = 100
_BATCH = 10
# The Lambda context.
_CONTEXT = SimpleNamespace(
    function_name="commit_transactions",
    memory_limit_in_mb=512,
    invoked_function_arn="arn:aws:lambda:eu-west-2:123456789012:function:commit_transactions",
    aws_request_id="52fdfc07-2182-154f-163f-5f0f9a621d72",
)
# Tables in all, tables in a batch.
_SHAPES = {"one": (1, 1), "in turn": (_TABLES, 1), "mixed": (_TABLES, _BATCH)}


def measure(settings: Settings) -> Result:
    commits = settings.rows or _COMMITS
    folder = str(settings.folder / "commits-dynamo")
    tasks = {
        name: Task(
            __name__,
            "ours",
            {"folder": folder, "commits": commits, "tables": tables, "in_batch": in_batch},
        )
        for name, (tables, in_batch) in _SHAPES.items()
    }
    runs = run_by_turns(tasks, settings.repeats)
    rate = {name: [commits / r.seconds for r in results] for name, results in runs.items()}
    figures = (
        figure("one table", rate["one"], "/s", Aim(300)),
        figure(f"{_TABLES} tables, one in a batch", rate["in turn"], "/s", Aim(300)),
        figure(f"{_TABLES} tables, {_BATCH} in a batch", rate["mixed"], "/s", Aim(1000)),
    )
    work = (
        f"{commits:,} commits of an ingest's file, {_BATCH} messages to a call of the handler of"
        " `commit_transactions`: parsed, validated and folded, one entry of the log for the"
        " messages of a table, each outcome in the job tracker. Log and tracker are on a"
        " DynamoDB server (dynoxide) of the same machine."
    )
    return Result("commits-dynamo", work, figures)


def ours(watch: Watch, folder: str, commits: int, tables: int, in_batch: int) -> dict[str, Any]:
    with dynamo_instance(Path(folder)) as instance:
        schema = schema_to_json(SCHEMA)
        refs = [create_table(instance, f"table{number}", schema) for number in range(tables)]
        events = _events(refs, commits, in_batch)
        from lambdas.commit_transactions.handler import handler

        opened = "sleeper.workers.lambda_function._opened"
        with mock.patch(opened, return_value=instance), watch:
            result = [handler(event, _CONTEXT)["batchItemFailures"] for event in events]
        check(not any(result), "messages were returned")
        count = 0
        for ref in refs:
            with instance.tables.state(ref.id).reading() as state:
                count += state.files.totals().references
        check(count == commits, f"{count} files were committed of {commits}")
    return {}


def _events(refs: Sequence[TableRef], commits: int, in_batch: int) -> list[dict[str, Any]]:
    """Batches for tables in turn; `in_batch` of them in each."""
    records = []
    for number in range(commits):
        turn, place = divmod(number, _BATCH)
        ref = refs[(turn * in_batch + place % in_batch) % len(refs)]
        records.append(_record(ref))
    return [{"Records": records[i : i + _BATCH]} for i in range(0, commits, _BATCH)]


def _record(ref: TableRef) -> dict[str, Any]:
    start_ms = system_clock()
    file = DataFile(
        new_data_path(ref.id, ROOT_PARTITION_ID, start_ms), 1000, 20_000, ("a",), ("z",)
    )
    additions = AddFiles(uuid.uuid4().hex, start_ms, (NewFile(file, ((ROOT_PARTITION_ID, 1000),)),))
    run = JobRunRef(ref.id, additions.id, JobKind.INGEST, new_run_id(), "task")
    return {
        "messageId": str(uuid.uuid4()),
        "receiptHandle": "receipt",
        "body": create_commit_message(run, additions).to_json(),
        "attributes": {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": str(start_ms),
            "MessageGroupId": ref.id,
        },
        "eventSource": "aws:sqs",
    }
