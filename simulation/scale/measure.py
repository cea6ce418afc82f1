"""Measures what the simulation takes for granted: requests and processor time of real code.

An instance whose S3, DynamoDB and SQS are servers on this machine, behind proxies that count, does
each kind of work once. A *work* is what one message or one run of a function does. It is *cold* if
the process has no copy of the table's state, and *warm* if it has.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import sleeper
from benchmarks.billed_requests import Counts, count_dynamo, count_s3, count_sqs
from benchmarks.counting_proxy import CountingProxy, Exchange, counting_proxy
from simulation.scale.entries import entry_bytes
from sleeper.committer import commit_messages
from sleeper.compaction.plan import create_table_jobs
from sleeper.garbage_collection.service import (
    run_garbage_collection,
    run_orphan_collection,
    snapshot_table,
)
from sleeper.ingest.service import submit_ingest
from sleeper.instance import Instance
from sleeper.jobs.event import JobKind, new_task_id
from sleeper.jobs.queue import QueueName
from sleeper.opening import open_instance
from sleeper.properties.table import INGEST_COMMIT_ASYNC
from sleeper.reports.metric import gather_table_metrics
from sleeper.splitting.find import send_new_splits
from sleeper.tables import TableRef
from sleeper.workers.message_batch import run_for_tables
from sleeper.workers.schedule import fan_out_tables, start_tasks
from sleeper.workers.worker import Worker, WorkerSettings
from tests.servers.aws_instance import AwsInstance, AwsServers, aws_instance
from tests.servers.dynoxide import dynoxide
from tests.servers.ministack import ministack
from tests.servers.seaweedfs import seaweedfs

_TABLES = 40
_FILES = 12
_COMMITS = 10
_SCHEMA = {
    "rowKeyFields": [{"name": "key", "type": "LongType"}],
    "sortKeyFields": [],
    "valueFields": [{"name": "value", "type": "StringType"}],
}
# Operations that read the table's state and change nothing if there is nothing to do.
_OPERATIONS: dict[QueueName, Callable[[Instance, TableRef], object]] = {
    QueueName.COMPACTION_JOB_CREATION: create_table_jobs,
    QueueName.FIND_PARTITIONS_TO_SPLIT: send_new_splits,
    QueueName.GARBAGE_COLLECTION: run_garbage_collection,
    QueueName.ORPHAN_COLLECTION: run_orphan_collection,
    QueueName.STATE_SNAPSHOTS: snapshot_table,
    QueueName.TABLE_METRICS: lambda instance, ref: gather_table_metrics(
        instance.tables.state(ref.id)
    ),
}


def measure() -> dict[str, Any]:
    """Returns each kind of work with its requests, prices and processor time."""
    with TemporaryDirectory() as folder, _opened(Path(folder)) as (aws, meter):
        work = _measure_rounds(aws, meter, Path(folder))
        work |= _measure_jobs(aws, meter)
        work |= _measure_commits(aws, meter)
    return {
        "command": "python -m simulation.scale --measure",
        "work": work,
        "entries": entry_bytes(),
    }


def _measure_rounds(aws: AwsInstance, meter: "_Meter", folder: Path) -> dict[str, Any]:
    """Measures the schedules of tables without work."""
    work: dict[str, Any] = {}
    with _process(aws) as instance:
        face = sleeper.Instance(instance)
        face.create_table("first", _SCHEMA)
        fan_out = QueueName.GARBAGE_COLLECTION
        work["fan_out"] = meter.run(lambda: fan_out_tables(instance, fan_out))
        for number in range(_TABLES):
            face.create_table(f"t{number}", _SCHEMA)
        work["fan_out_of_many"] = {
            **meter.run(lambda: fan_out_tables(instance, fan_out)),
            "tables": _TABLES + 1,
        }
        work["start_tasks"] = meter.run(lambda: start_tasks(instance, JobKind.INGEST))
        refs = list(instance.tables.index.list())
    for number, operation in enumerate(_OPERATIONS):
        state = folder / f"process-{number}"
        with patch.dict("os.environ", {"SLEEPER_STATE_FOLDER": str(state)}):
            cold, warm = _measure_operation(aws, meter, operation, refs)
        work |= {f"{operation.value}, cold": cold, f"{operation.value}, warm": warm}
    return work


def _measure_operation(
    aws: AwsInstance, meter: "_Meter", operation: QueueName, refs: Sequence[TableRef]
) -> tuple[dict[str, Any], dict[str, Any]]:
    with _process(aws) as instance:
        # The first table also opens connections and reads properties.
        _handle(instance, operation, refs[0])
        others = refs[1:]
        cold = meter.mean(lambda ref: _handle(instance, operation, ref), others)
        return cold, meter.mean(lambda ref: _handle(instance, operation, ref), others)


def _handle(instance: Instance, operation: QueueName, ref: TableRef) -> None:
    """Handles a message of the operation as its function does."""
    attributes = {
        "ApproximateReceiveCount": "1",
        "SentTimestamp": "0",
        "MessageGroupId": ref.id,
        "SenderId": "x",
    }
    record = {
        "messageId": "m",
        "receiptHandle": "r",
        "body": ref.id,
        "attributes": attributes,
        "messageAttributes": {},
        "eventSource": "aws:sqs",
    }
    failures = run_for_tables(
        {"Records": [record]},
        instance,
        operation,
        lambda each: _OPERATIONS[operation](instance, each),
    )
    if failures["batchItemFailures"]:
        raise RuntimeError(f"operation {operation.value} failed")


def _measure_jobs(aws: AwsInstance, meter: "_Meter") -> dict[str, Any]:
    """Measures ingests of small files, their compaction, and its commit."""
    work: dict[str, Any] = {}
    with _process(aws) as instance:
        sleeper.Instance(instance).create_table("jobs", _SCHEMA)
        ref = instance.tables.index.find("jobs")
        urls = [_upload(aws, number) for number in range(_FILES)]
        ingests, compactions = (_worker(instance, kind) for kind in ("ingest", "compaction"))
        _ingest(instance, ingests, "jobs", urls[0])
        for url in urls[1:]:
            submit_ingest(instance, "jobs", [url])
        work["ingest"] = meter.mean(lambda _: ingests.run_one(), urls[1:])
        work["job_creation"] = meter.run(lambda: create_table_jobs(instance, ref))
        work["compaction"] = meter.run(compactions.run_one)
    return work


def _measure_commits(aws: AwsInstance, meter: "_Meter") -> dict[str, Any]:
    """Measures batches of the committer: of one table, and of several."""
    work: dict[str, Any] = {}
    with _process(aws) as instance:
        ingests, url = _worker(instance, "ingest"), _upload(aws, 0)
        names = [f"commits-{number}" for number in range(_COMMITS)]
        for name in names:
            sleeper.Instance(instance).create_table(
                name, _SCHEMA, {INGEST_COMMIT_ASYNC.name: "true"}
            )
        for _ in range(2):
            _ingest(instance, ingests, names[0], url)
            work["commit of 1"] = _commit(instance, meter)
        for _ in names:
            _ingest(instance, ingests, names[0], url)
        work["commit of 10, one table"] = _commit(instance, meter)
        for _ in range(2):
            for name in names:
                _ingest(instance, ingests, name, url)
            work["commit of 10, ten tables"] = _commit(instance, meter)
    return work


def _worker(instance: Instance, kind: str) -> Worker:
    settings = WorkerSettings(kind, (QueueName(kind),))
    return Worker(instance, new_task_id(), threading.Event(), settings)


def _ingest(instance: Instance, worker: Worker, table: str, url: str) -> None:
    submit_ingest(instance, table, [url])
    if not worker.run_one():
        raise RuntimeError("the ingest queue is empty")


def _commit(instance: Instance, meter: "_Meter") -> dict[str, Any]:
    """Commits a batch as the function does, whose service receives and deletes the messages."""
    commits = instance.jobs.queue(QueueName.COMMITS)
    messages = commits.receive(_COMMITS)
    if not messages:
        raise RuntimeError("the queue of commits is empty")
    work = meter.run(lambda: commit_messages(instance, messages))
    for message in messages:
        commits.delete(message.receipt)
    return work


def _upload(aws: AwsInstance, number: int) -> str:
    lines = [json.dumps({"key": number * 100 + row, "value": f"row {row}"}) for row in range(100)]
    name = f"rows-{number}.json"
    aws.s3().put_object(Bucket=aws.source_bucket, Key=name, Body="\n".join(lines).encode())
    return f"s3://{aws.source_bucket}/{name}"


@contextmanager
def _process(aws: AwsInstance) -> Iterator[Instance]:
    instance = open_instance(aws.where)
    try:
        yield instance
    finally:
        instance.close()


@dataclass(frozen=True, slots=True)
class _Meter:
    """Counts requests by operation and by price, and processor time without that of the proxies."""

    proxies: Sequence[CountingProxy]
    prices: Counts
    requests: Counts

    def run(self, job: Callable[[], object], count: int = 1) -> dict[str, Any]:
        self.prices.clear()
        self.requests.clear()
        start = self._cpu_seconds()
        job()
        cpu = self._cpu_seconds() - start
        return {
            "cpu_seconds": round(cpu / count, 4),
            "requests": {name: round(n / count, 2) for name, n in sorted(self.requests.items())},
            "prices": {name: round(n / count, 2) for name, n in sorted(self.prices.items())},
        }

    def mean(self, job: Callable[[Any], object], subjects: Sequence[Any]) -> dict[str, Any]:
        def run_all() -> None:
            for each in subjects:
                job(each)

        return self.run(run_all, len(subjects))

    def _cpu_seconds(self) -> float:
        return time.process_time() - sum(proxy.cpu_seconds for proxy in self.proxies)


@contextmanager
def _opened(folder: Path) -> Iterator[tuple[AwsInstance, _Meter]]:
    prices: Counts = Counter()
    requests: Counts = Counter()
    with ExitStack() as stack:
        places = [folder / name for name in ("s3", "dynamo", "others", "state")]
        for place in places:
            place.mkdir()
        s3 = stack.enter_context(seaweedfs(places[0]))
        dynamo = stack.enter_context(dynoxide(places[1]))
        others = stack.enter_context(ministack(places[2]))

        def counted(url: str, count: Callable[[Counts, Any], None]) -> CountingProxy:
            def observe(exchange: Exchange) -> None:
                requests[_name(exchange)] += 1
                count(prices, exchange)

            return stack.enter_context(counting_proxy(url, observe))

        proxies = (
            counted(s3.endpoint, count_s3),
            counted(dynamo.url, count_dynamo),
            counted(others.url, count_sqs),
        )
        servers = AwsServers(
            replace(s3, endpoint=proxies[0].endpoint),
            replace(dynamo, url=proxies[1].endpoint),
            replace(others, url=proxies[2].endpoint),
        )
        aws = stack.enter_context(aws_instance(servers, places[3]))
        yield aws, _Meter(proxies, prices, requests)


def _name(exchange: Exchange) -> str:
    """Returns the service and operation of a request, such as `dynamodb.GetItem`."""
    service, _, operation = exchange.target.rpartition(".")
    if not service:
        return f"s3.{exchange.method}"
    return f"{'dynamodb' if 'Dynamo' in service else 'sqs'}.{operation}"
